"""ipywidgets and what is built on it, on real ranks, as nbclient and other clients see it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from .client import DEADLINE, Kernel
from .test_headless import notebook

pytestmark = pytest.mark.kernel

RANK = "import os\nrank = int(os.environ['RANK'])\nimport ipywidgets as w\n"
STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
sizes = pytest.mark.parametrize("size", [2, 4])


def executed(*cells: str, size: int) -> NotebookNode:
    nb = notebook(f"%processes {size}", RANK, *cells)
    NotebookClient(nb, kernel_name="spmd-python3", timeout=120, store_widget_state=True).execute()
    return nb


def stored(nb: NotebookNode, model: str) -> list[dict[str, Any]]:
    """The states of a model that a notebook has kept."""
    widgets = nb.metadata.widgets[STATE]["state"].values()
    return [dict(w["state"]) for w in widgets if w["model_name"] == model]


def views(cell: NotebookNode) -> list[str]:
    return [o.data[VIEW]["model_id"] for o in cell.outputs if VIEW in o.get("data", {})]


def text_of(outputs: list[dict[str, Any]]) -> str:
    return "".join(output.get("text", "") for output in outputs)


@sizes
def test_widgets_of_every_kind_are_stored(size: int) -> None:
    every = """
import datetime, inspect
made = {}
for name, kind in sorted(vars(w).items()):
    if not (inspect.isclass(kind) and issubclass(kind, w.DOMWidget)) or name.startswith("_"):
        continue
    try:
        made[name] = kind()
    except Exception:  # it needs arguments, as an abstract class does
        pass
made["Image"].value = bytes([rank]) * 5
made["Select"].options = ["a", "b"]
made["DatePicker"].value = datetime.date(2024, 1, 1 + rank)
box = w.VBox(list(made.values()))
link = w.jslink((made["IntSlider"], "value"), (made["IntText"], "value"))
made["IntSlider"].value = rank + 7
box
"""
    nb = executed(every, "print(len(made))", size=size)
    assert int(nb.cells[3].outputs[0].text) > 40
    states = nb.metadata.widgets[STATE]["state"]
    shown = views(nb.cells[2])
    assert len(set(shown)) == size and set(shown) <= states.keys()
    assert sorted(s["value"] for s in stored(nb, "IntSliderModel")) == [7 + r for r in range(size)]
    assert sorted(s["value"]["date"] for s in stored(nb, "DatePickerModel")) == [
        1 + rank for rank in range(size)
    ]
    images = [w for w in states.values() if w["model_name"] == "ImageModel"]
    assert len({w["buffers"][0]["data"] for w in images}) == size
    assert len(stored(nb, "LinkModel")) == size
    for state in stored(nb, "LinkModel"):
        slider, _ = state["source"]
        assert states[slider.removeprefix("IPY_MODEL_")]["model_name"] == "IntSliderModel"


@sizes
def test_each_output_widget_captures_its_own_rank(size: int) -> None:
    code = """
from IPython.display import HTML, display, clear_output
import sys, time
out, inner = w.Output(), w.Output()
display(out)
print("before")
with out:
    print("text of", rank)
    print(f"line {rank}\\nof one write")
    time.sleep(0.3 * rank)
    print("more of", rank, file=sys.stderr)
    with inner:
        print("inner", rank)
    display(HTML(f"<b>{rank}</b>"), display_id="same")
    1 / rank
print("after")
"""
    clear = "with out:\n    clear_output()\n    print('anew', rank)\n"
    nb = executed(code, f"%%rank 1\n{clear}", size=size)
    cell = nb.cells[2]
    said = "".join(o.get("text", "") for o in cell.outputs)
    lines = [line.rpartition("│ ")[2] for line in said.splitlines()]
    assert set(lines) == {"before", "after"}, said
    outputs = {}
    for state in stored(nb, "OutputModel"):
        outputs[text_of(state["outputs"])] = state["outputs"]
        assert state["msg_id"] == ""
    whole = "text of {0}\nline {0}\nof one write\nmore of {0}\n"
    wanted = [whole.format(rank) for rank in range(size) if rank != 1] + ["anew 1\n"]
    wanted += [f"inner {rank}\n" for rank in range(size)]
    assert sorted(outputs) == sorted(wanted)
    kinds = [o["output_type"] for o in outputs[whole.format(0)]]
    assert kinds == ["stream", "stream", "display_data", "error"]
    assert outputs[whole.format(0)][-1]["ename"] == "ZeroDivisionError"
    assert not [o for o in cell.outputs if o.output_type == "error"]


@sizes
def test_interact_and_bars(size: int) -> None:
    interact = """
from time import sleep
@w.interact(x=w.IntSlider(rank + 1))
def shown(x):
    print("x is", x)
    return x * 10
"""
    bar = """
from tqdm.notebook import tqdm
for _ in tqdm(range(6 + rank), desc=f"bar {rank}"):
    sleep(0.01)
"""
    nb = executed(interact, bar, size=size)
    taken = [state["outputs"] for state in stored(nb, "OutputModel")]
    assert sorted(text_of(outputs) for outputs in taken) == [
        f"x is {1 + rank}\n" for rank in range(size)
    ]
    results = [o["data"]["text/plain"] for outputs in taken for o in outputs if "data" in o]
    assert sorted(results) == [str(10 + 10 * rank) for rank in range(size)]
    assert len(set(views(nb.cells[2]))) == len(set(views(nb.cells[3]))) == size
    bars = stored(nb, "FloatProgressModel")
    assert sorted(bar["value"] for bar in bars) == [6 + rank for rank in range(size)]
    assert {bar["bar_style"] for bar in bars} == {"success"}


@sizes
def test_anywidget(size: int) -> None:
    code = """
import anywidget, traitlets
class Counter(anywidget.AnyWidget):
    _esm = "export default { render({ model, el }) { el.textContent = model.get('count') } }"
    count = traitlets.Int(0).tag(sync=True)
    data = traitlets.Bytes(b"").tag(sync=True)
counter = Counter(count=rank, data=bytes([rank]))
counter
"""
    nb = executed(code, size=size)
    assert sorted(state["count"] for state in stored(nb, "AnyModel")) == list(range(size))
    assert len(set(views(nb.cells[2]))) == size


# ---------------------------------------------------------------- clients that talk back


@pytest.fixture(scope="module", params=[2, 4])
def widgets(request: pytest.FixtureRequest) -> Iterator[tuple[Kernel, int]]:
    with Kernel() as kernel:
        kernel.ok(f"%processes {request.param}")
        kernel.ok(RANK)
        yield kernel, request.param


def send(
    kernel: Kernel,
    kind: str,
    content: dict[str, Any],
    client: Any = None,
    buffers: list[bytes] | None = None,
    **metadata: Any,
) -> str:
    """A comm message; the id that what it causes has as its parent."""
    client = client or kernel.client
    message = client.session.msg(kind, content, metadata=metadata)
    client.session.send(client.shell_channel.socket, message, buffers=buffers)
    return str(message["header"]["msg_id"])


def heard(kernel: Kernel, msg_id: str, client: Any = None) -> list[dict[str, Any]]:
    """IOPub messages of one parent, until idle."""
    client, found = client or kernel.client, []
    deadline = time.monotonic() + DEADLINE
    while not found or found[-1]["content"].get("execution_state") != "idle":
        message = client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") == msg_id:
            found.append(message)
    return found


def update(comm_id: str, **state: Any) -> dict[str, Any]:
    data = {"method": "update", "state": state, "buffer_paths": []}
    return {"comm_id": comm_id, "data": data}


def models(kernel: Kernel, code: str, name: str) -> dict[str, str]:
    """Comm ids of the widgets that a cell makes, by their description."""
    opened = kernel.ok(code).of("comm_open")
    states = {content["comm_id"]: content["data"]["state"] for content in opened}
    return {
        str(state["description"]): comm_id
        for comm_id, state in states.items()
        if state["_model_name"] == name
    }


def sliders(kernel: Kernel) -> dict[str, str]:
    code = "slider = w.IntSlider(description=f'of {rank}')\nslider"
    return models(kernel, code, "IntSliderModel")


def values(kernel: Kernel, expression: str, size: int) -> list[str]:
    """What each rank says."""
    text = kernel.ok(f"print(f'<{{rank}}={{{expression}}}>')").stdout
    found = {part.partition("=")[0]: part.partition("=")[2] for part in text.split("<")[1:]}
    return [found[str(rank)].partition(">")[0] for rank in range(size)]


def test_two_clients_move_sliders(widgets: tuple[Kernel, int]) -> None:
    kernel, size = widgets
    ids = sliders(kernel)
    other = kernel.manager.client(session=kernel.client.session.clone())
    other.session.session = "second-client"
    other.start_channels()
    try:
        other.wait_for_ready(timeout=DEADLINE)
        comms = kernel.request("comm_info_request", {"target_name": "jupyter.widget"})["comms"]
        assert set(ids.values()) <= comms.keys()
        for rank in range(size):
            client = (kernel.client, other)[rank % 2]
            msg_id = send(kernel, "comm_msg", update(ids[f"of {rank}"], value=20 + rank), client)
            for listener in (kernel.client, other):  # both hear the echo
                echoes = [m for m in heard(kernel, msg_id, listener) if "data" in m["content"]]
                assert [m["content"]["comm_id"] for m in echoes] == [ids[f"of {rank}"]]
                assert echoes[0]["content"]["data"]["method"] == "echo_update"
    finally:
        other.stop_channels()
    assert values(kernel, "slider.value", size) == [str(20 + rank) for rank in range(size)]


def test_a_callback_prints_into_the_output_widget_of_its_rank(widgets: tuple[Kernel, int]) -> None:
    kernel, _ = widgets
    code = """
def moved(change):
    with out:
        print("moved to", change.new, "on", rank)
out = w.Output()
slider = w.IntSlider(description=f"of {rank}")
slider.observe(moved, "value")
"""
    ids = models(kernel, code, "IntSliderModel")
    msg_id = send(kernel, "comm_msg", update(ids["of 1"], value=5))
    story = [
        m["content"].get("text", m["content"].get("data", {}).get("state"))
        for m in heard(kernel, msg_id)
        if m["msg_type"] in ("stream", "comm_msg")
    ]
    # ipykernel may send the text in pieces; each is captured for itself.
    texts = [text for text in story if isinstance(text, str)]
    captured = [
        text
        for begin, text, end in zip(story, story[1:], story[2:], strict=False)
        if (begin, end) == ({"msg_id": msg_id}, {"msg_id": ""})
    ]
    assert texts == captured
    assert "".join(captured) == "moved to 5 on 1\n"


def restored(kernel: Kernel) -> list[dict[str, Any]]:
    """What a page that is loaded again gets for its one question."""
    target = "jupyter.widget.control"
    comm_id = f"control-{time.monotonic_ns()}"
    opening = {"comm_id": comm_id, "target_name": target, "data": {"widgets": None}}
    opened = send(kernel, "comm_open", opening, version="1.0.0")
    question = {"comm_id": comm_id, "data": {"method": "request_states"}}
    heard(kernel, opened)
    answers = heard(kernel, send(kernel, "comm_msg", question))
    heard(kernel, send(kernel, "comm_close", {"comm_id": comm_id, "data": {}}))
    return [m for m in answers if m["msg_type"] == "comm_msg"]


def test_hundreds_of_widgets_are_restored_at_once(widgets: tuple[Kernel, int]) -> None:
    kernel, size = widgets
    code = """
many = [w.IntText(i, description=f"{rank}:{i}") for i in range(300)]
image = w.Image(value=bytes([rank]) * 10, description=f"image")
"""
    result = kernel.ok(code)
    (answer,) = restored(kernel)
    data = answer["content"]["data"]
    assert data["method"] == "update_states" and answer["metadata"] == {}
    states = [s["state"] for s in data["states"].values() if s["model_name"] == "IntTextModel"]
    shown = {state["description"]: state["value"] for state in states}
    assert shown == {f"{rank}:{i}": i for rank in range(size) for i in range(300)}
    opened = {c["comm_id"] for c in result.of("comm_open")}
    assert opened <= data["states"].keys()
    buffers = {
        bytes(buffer)
        for path, buffer in zip(data["buffer_paths"], answer["buffers"], strict=True)
        if data["states"][path[0]]["model_name"] == "ImageModel"
    }
    assert {bytes([rank]) * 10 for rank in range(size)} <= buffers


def test_comms_that_a_client_opens_reach_every_rank(widgets: tuple[Kernel, int]) -> None:
    kernel, size = widgets
    code = """
got = []
def opened(comm, message):
    comm.on_msg(lambda m: (got.append(bytes(m["buffers"][0])), comm.send({"rank": rank}, buffers=m["buffers"])))
if rank != 0 or 'all' in target:
    get_ipython().kernel.comm_manager.register_target(target, opened)
"""
    kernel.ok("target = 'for all'\n" + code)
    comm_id = f"ours-{size}"
    heard(kernel, send(kernel, "comm_open", {"comm_id": comm_id, "target_name": "for all"}))
    msg_id = send(kernel, "comm_msg", {"comm_id": comm_id, "data": {}}, buffers=[b"\0\1"])
    answers = [m for m in heard(kernel, msg_id) if m["msg_type"] == "comm_msg"]
    assert sorted(m["content"]["data"]["rank"] for m in answers) == list(range(size))
    assert {bytes(m["buffers"][0]) for m in answers} == {b"\0\1"}
    assert values(kernel, "got", size) == ["[b'\\x00\\x01']"] * size
    # A rank without the target closes its end: for clients the comm stays open, for it is.
    kernel.ok("target = 'for some'\n" + code)
    msg_id = send(kernel, "comm_open", {"comm_id": "some", "target_name": "for some"})
    assert not [m for m in heard(kernel, msg_id) if m["msg_type"] == "comm_close"]
    msg_id = send(kernel, "comm_msg", {"comm_id": "some", "data": {}}, buffers=[b"x"])
    answers = [m for m in heard(kernel, msg_id) if m["msg_type"] == "comm_msg"]
    assert sorted(m["content"]["data"]["rank"] for m in answers) == list(range(1, size))


def test_comms_in_an_async_cell(widgets: tuple[Kernel, int]) -> None:
    """What a rank sends between two awaits is there before the cell ends."""
    kernel, size = widgets
    ids = sliders(kernel)
    code = """
import asyncio
for i in range(1, 4):
    slider.value = 10 * i + rank
    await asyncio.sleep(0.05)
print("end")
"""
    result = kernel.ok(code)
    seen: dict[str, list[int]] = {}
    for content in result.of("comm_msg"):
        seen.setdefault(content["comm_id"], []).append(content["data"]["state"]["value"])
    assert seen == {ids[f"of {r}"]: [10 + r, 20 + r, 30 + r] for r in range(size)}
    msg_id = kernel.send("await asyncio.sleep(0.3)\nprint(slider.value)")
    send(kernel, "comm_msg", update(ids["of 0"], value=3))
    kernel.collect(msg_id)
    assert values(kernel, "slider.value", size)[0] == "3"


def test_the_states_of_a_dead_rank_are_missing_and_said_so() -> None:
    with Kernel() as kernel:
        kernel.ok("%processes 2")
        kernel.ok(RANK)
        ids = sliders(kernel)
        kernel.run("%%rank 1\nos._exit(3)")
        (answer,) = restored(kernel)
        states = answer["content"]["data"]["states"]
        assert ids["of 0"] in states and ids["of 1"] not in states
        assert answer["metadata"] == {"spmd": {"ranks": [0], "missing": [1]}}
        assert states[ids["of 0"]]["state"]["value"] == 0
