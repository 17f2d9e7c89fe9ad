"""What bounds a rank's memory: text is sent in chunks, who prints waits, IPython does not keep it all."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from spmd_kernel.io import rank as reader
from spmd_kernel.rank import flow
from spmd_kernel.rank.flow import ACK, CHUNK, MESSAGE, QUANTUM, WINDOW, Buffer, Flow
from spmd_kernel.rank.remembered import ALL, CELL, Book


class Thread:
    """IOPubThread, as far as `Flow` knows it; what is scheduled is done when the test says so."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.events: deque[Callable[[], None]] = deque()
        self.sent: list[Any] = []
        self.socket = self
        self._xpub_stream: Thread | None = self
        self.subscribed: list[Any] = []
        self.unheard: list[Any] = []  # came while it sent

    def schedule(self, event: Callable[[], None]) -> None:
        self.events.append(event)

    def send_multipart(self, frames: Any) -> None:
        raise AssertionError("not past the flow")

    def _really_send(self, frames: Any) -> None:
        self.sent.append(frames)

    def get(self, option: int) -> int:
        assert option == zmq.EVENTS
        return zmq.POLLIN if self.unheard else 0

    def recv_multipart(self) -> Any:
        return self.unheard.pop(0)

    def set_hwm(self, mark: int) -> None:
        assert mark == 0

    def on_recv(self, receive: Callable[[Any], None]) -> None:
        self.receive = receive

    def _handle_subscription(self, frames: Any) -> None:
        self.subscribed.append(frames)

    def work(self) -> None:
        while self.events:
            self.events.popleft()()


def printing(made: Flow, frames: list[bytes]) -> threading.Thread:
    thread = threading.Thread(target=made.send_multipart, args=(frames,), daemon=True)
    thread.start()
    return thread


def text(size: int) -> list[bytes]:
    return [b"stream".ljust(size, b"x")]


def test_both_sides_mean_the_same() -> None:
    for name in ("ACK", "QUANTUM"):
        assert getattr(reader, name) == getattr(flow, name)
    for topic in (b"stream.stdout", b"display_data"):
        frames = [topic, b"x" * 999_999]
        assert reader.weight(frames) == flow.weight(frames) > MESSAGE


def test_who_prints_waits_while_too_much_is_unsent() -> None:
    thread = Thread()
    made = Flow(thread)
    waiting = printing(made, text(flow.UNSENT))
    waiting.join(0.1)
    assert waiting.is_alive()
    thread.work()
    waiting.join(20)
    assert not waiting.is_alive() and len(thread.sent) == 1


def test_who_prints_waits_while_too_much_is_unread_from_the_first_byte_on() -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    thread.receive([b"\1other"])
    assert thread.subscribed == [[b"\1other"]]
    waiting = printing(made, text(WINDOW + QUANTUM - MESSAGE))
    while waiting.is_alive() and not thread.sent:
        thread.work()
    waiting.join(0.1)
    assert waiting.is_alive()
    thread.receive([b"\1" + ACK])
    waiting.join(20)
    assert not waiting.is_alive()


def test_what_came_while_it_sent_is_heard() -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    waiting = printing(made, text(WINDOW + QUANTUM - MESSAGE))
    thread.unheard = [[b"\1other"], [b"\1" + ACK]]
    while waiting.is_alive():
        thread.work()
    assert thread.subscribed == [[b"\1other"]]


def test_an_ipykernel_that_hears_nothing_of_its_reader_does_not_wait() -> None:
    thread = Thread()
    thread._xpub_stream = None  # version 6 publishes without it
    made = Flow(thread)
    waiting = printing(made, text(WINDOW + QUANTUM - MESSAGE))
    while waiting.is_alive():
        thread.work()
    assert len(thread.sent) == 1


def test_the_thread_that_sends_and_the_one_that_stops_do_not_wait() -> None:
    thread = Thread()
    made = Flow(thread)
    made.send_multipart(text(WINDOW + QUANTUM - MESSAGE))  # this is its own thread
    control = threading.Thread(target=made.send_multipart, args=([b"status"],), name="Control")
    control.start()
    control.join(20)
    assert not control.is_alive()


class Stream:
    """OutStream, as far as `Flow.flush` knows it."""

    def __init__(self, made: Flow, text: bytes = b""):
        self.flush_timeout = 20.0
        self._buffers = {"parent": text} if text else {}
        self._made = made

    def _flush(self) -> None:
        def send() -> None:
            while self._buffers:
                self._made.send_multipart([b"stream", self._buffers.popitem()[1]])

        self._made.in_one(send)


@pytest.mark.parametrize("text", [b"", b"text"])
def test_a_flush_is_over_when_all_that_was_said_before_it_is_sent(text: bytes) -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    for said in (b"first", b"second"):
        printing(made, [b"display", said]).join(20)
    flushing = threading.Thread(target=made.flush, args=(Stream(made, text),), daemon=True)
    flushing.start()
    flushing.join(0.1)
    assert flushing.is_alive() and not thread.sent
    while flushing.is_alive():
        thread.work()
    assert [frames[1] for frames in thread.sent] == [b"first", b"second", *([text] if text else [])]


def test_a_flush_with_nothing_to_send_wakes_nobody() -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    flushing = threading.Thread(target=made.flush, args=(Stream(made),), daemon=True)
    flushing.start()
    flushing.join(20)
    assert not (flushing.is_alive() or thread.events)


def test_a_flush_sends_what_a_stop_has_left_behind() -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    schedule, made._schedule = made._schedule, lambda event: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        made.send_multipart([b"display"])
    made._schedule = schedule
    flushing = threading.Thread(target=made.flush, args=(Stream(made),), daemon=True)
    flushing.start()
    while flushing.is_alive():
        thread.work()
    assert thread.sent == [[b"display"]]


def test_many_messages_wake_the_thread_once_and_keep_their_order() -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    said = [[b"display", b"%d" % number] for number in range(10)]
    for frames in said:
        printing(made, frames).join(20)
    assert len(thread.events) == 1
    thread.work()
    assert thread.sent == said


def test_one_message_that_cannot_be_sent_takes_no_other_along() -> None:
    thread = Thread()
    made = Flow(thread)
    thread.work()
    for frames in (["no bytes"], [b"display"]):
        made._queue.append(lambda frames=frames: thread._really_send(b"".join(frames)))
        made._tell()
    with pytest.raises(TypeError):
        thread.work()
    thread.work()
    assert thread.sent == [b"display"]


def test_text_leaves_in_chunks_that_end_where_a_call_of_write_did() -> None:
    buffer = Buffer()
    pieces = [f"{number:05}\n" for number in range(CHUNK * 5 // 12)]
    for piece in pieces:
        buffer.write(piece)
    chunks = list(buffer.chunks())
    assert "".join(chunks) == "".join(pieces) == buffer.getvalue()
    assert len(chunks) == 3
    assert all(len(chunk) <= CHUNK + 6 and chunk.endswith("\n") for chunk in chunks)


@pytest.mark.parametrize("text", ["x" * 10 * CHUNK, ("x" * 79 + "\n") * 5000, "short"])
def test_a_huge_piece_is_parted_at_lines_if_it_has_any(text: str) -> None:
    buffer = Buffer()
    buffer.write(text)
    chunks = list(buffer.chunks())
    assert "".join(chunks) == text
    assert all(len(chunk) <= 2 * CHUNK for chunk in chunks)
    if "\n" in text:
        assert all(chunk.endswith("\n") for chunk in chunks)


class Output:
    """``HistoryOutput`` of IPython."""

    def __init__(self, output_type: str, bundle: dict[str, Any]):
        self.output_type = output_type
        self.bundle = bundle


def test_ipython_keeps_the_beginning_of_what_a_cell_prints() -> None:
    book = Book()
    output = Output("out_stream", {"stream": []})
    book[1].append(output)
    for _ in range(1000):
        output.bundle["stream"].append("x" * 10_000)
        book.trim()
    kept = sum(map(len, output.bundle["stream"]))
    assert CELL * 0.9 < kept <= CELL
    book.setdefault(1, []).append(Output("display_data", {"text/plain": "x" * CELL}))
    assert len(book[1]) == 1


def test_a_cell_whose_first_output_is_too_large_has_one_all_the_same() -> None:
    book = Book()
    book[1].append(Output("display_data", {"image/png": "x" * 2 * CELL}))
    assert [output.bundle for output in book[1]] == [{}]
    stream = Output("out_stream", {"stream": []})
    book[1].append(stream)
    stream.bundle["stream"].append("text")
    assert list(stream.bundle["stream"]) == ["text"]


def test_of_many_cells_the_newest_are_kept() -> None:
    book = Book()
    for count in range(1, 100):
        book[count].append(Output("display_data", {"image/png": "x" * (CELL // 2)}))
    assert book.size <= ALL and 99 in book and 1 not in book
    book.clear()
    assert not book and book.size == 0
