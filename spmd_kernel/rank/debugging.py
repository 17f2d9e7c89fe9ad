"""Run silently in an ipykernel rank each time before its debugger is switched on.

ipykernel lets debugpy start an adapter, a process of its own per rank, which passes messages on to
pydevd in the rank.  pydevd speaks the same protocol itself: here it listens where the adapter would, and
ipykernel is told that this is done.  What cannot be done so (another debugpy, another ipykernel) is
left to ipykernel.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from importlib.machinery import SourceFileLoader
from typing import Any

HOST = "127.0.0.1"
WAITING = 2  # tasks of ipykernel that wait for answers: one serves requests, one serves stops
NO_ANSWER = {"type": "response", "success": False, "body": {"threads": []}}


def listen(debugger: Any) -> None:
    """As ipykernel's ``Debugger.start``, but without an adapter; once in a process.

    The system chooses the port, so no other rank can have taken it (ipykernel#988).
    """
    import debugpy
    from ipykernel.compiler import get_tmp_directory

    client, folder = debugger.debugpy_client, get_tmp_directory()
    if debugger.debugpy_initialized or client.debugpy_port != -1:
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _, port = debugpy.listen((HOST, 0), in_process_debug_adapter=True)
    client.debugpy_host, client.debugpy_port = HOST, str(port)
    debugger.debugpy_initialized = True


def answer_always() -> None:
    """``continue`` is answered when threads go on; when none is stopped, at once.

    It would be never else, and ipykernel would read its control channel no more (ipykernel#1255).
    What an interrupt has lost in pydevd is answered by ``spmd_mend``, which our repair calls.
    """
    import pydevd
    from _pydevd_bundle import pydevd_thread_lifecycle

    kind: Any = pydevd.ThreadsSuspendedSingleNotification
    if hasattr(kind, "spmd_mend"):
        return
    add = kind.add_on_resumed_callback
    unanswered: list[Any] = []

    def add_on_resumed_callback(self: Any, callback: Any) -> None:
        unanswered.append(callback)

        def once() -> None:
            with contextlib.suppress(ValueError):
                unanswered.remove(callback)
                callback()

        with self._lock:  # held while threads stop and go on
            due = self._last_resume_notification_time < self._last_suspend_notification_time
            if due and self._suspended_thread_id_to_thread:
                add(self, once)
                return
        once()

    def mend(self: Any) -> None:
        """The main thread, which calls this, is not suspended; what was suspended with it goes on, too."""
        main = threading.main_thread()
        with self._lock:
            suspended = self._suspended_thread_id_to_thread
            for key in [k for k, t in suspended.items() if t is main]:
                del suspended[key]
        pydevd_thread_lifecycle.resume_threads("*", except_thread=main)
        for callback in list(unanswered):
            with contextlib.suppress(ValueError):
                unanswered.remove(callback)
                callback()

    kind.spmd_mend = mend
    kind.add_on_resumed_callback = add_on_resumed_callback


def forget_at_disconnect(client: Any) -> None:
    """Who still waits for an answer when the debugger is switched off gets none, but an empty one.

    ipykernel asks for the threads at each stop. If that is the moment, the asker would go on waiting,
    and take the first answer of the next session: nobody could initialize any more, nor hear of stops.
    So would half a message that came last, with which the next one seems to begin.
    """
    disconnect, send = client.disconnect_tcp_socket, client.send_dap_request
    receive = client.receive_dap_frame
    if hasattr(disconnect, "spmd_answers"):
        return

    def disconnect_tcp_socket() -> None:
        disconnect()
        left = client.message_queue
        client.message_queue = type(left)(client._forward_event, client.log)
        for _ in range(WAITING):
            left.message_queue.put_nowait(dict(NO_ANSWER))

    def receive_dap_frame(frame: str) -> None:
        if not frame:  # a connection begins or ends (zmq_socket(3), ZMQ_STREAM)
            client.message_queue.tcp_buffer = ""
            client.message_queue._reset_tcp_pos()
        receive(frame)

    async def send_dap_request(message: Any) -> Any:
        return dict(NO_ANSWER) if client.routing_id is None else await send(message)

    disconnect_tcp_socket.spmd_answers = True  # type: ignore[attr-defined]
    client.disconnect_tcp_socket = disconnect_tcp_socket
    client.receive_dap_frame = receive_dap_frame
    client.send_dap_request = send_dap_request


def leave_housekeeping() -> None:
    """A stop suspends all threads, but not those of the kernel: the main one may wait for what they hold.

    With ``sys.monitoring`` (Python 3.12) library code is no refuge: IPython's thread that saves the
    history stopped with its lock held.  ipykernel marks its other threads itself.
    """
    from ipykernel.parentpoller import ParentPollerUnix
    from IPython.core.history import HistorySavingThread

    pipes = [getattr(stream, "watch_fd_thread", None) for stream in (sys.stdout, sys.stderr)]
    for owner in (HistorySavingThread, ParentPollerUnix, *filter(None, pipes)):
        owner.pydev_do_not_trace = True  # as pydevd does in its own console
        owner.is_pydev_daemon_thread = True


def leave_children() -> None:
    """A forked child has no thread that could hear of a client: at a breakpoint it would stop for ever."""
    if not getattr(sys, "_spmd_leaves_children", False):
        sys._spmd_leaves_children = True  # type: ignore[attr-defined]
        os.register_at_fork(after_in_child=stop_tracing)


def stop_tracing() -> None:
    with contextlib.suppress(Exception):
        import pydevd
        from _pydevd_bundle import pydevd_constants

        if getattr(pydevd_constants, "PYDEVD_USE_SYS_MONITORING", False):
            pydevd.pydevd_sys_monitoring.stop_monitoring(all_threads=True)
        pydevd.settrace_forked(setup_tracing=False)  # it has no debugger, and `sys.settrace` back
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type, unused-ignore]


def hook_breakpoints() -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "breakpoints.py")
    namespace: dict[str, Any] = {"__name__": "spmd_kernel.rank.breakpoints", "__file__": path}
    exec(SourceFileLoader("", path).get_code(""), namespace)  # type: ignore[arg-type]
    namespace["install"](os.environ.get("WORLD_SIZE", "1") not in ("", "1"), debugged=True)


def main() -> None:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    debugger: Any = getattr(getattr(shell, "kernel", None), "debugger", None)
    with contextlib.suppress(Exception):
        listen(debugger)
    with contextlib.suppress(Exception):
        forget_at_disconnect(debugger.debugpy_client)
    for step in (leave_housekeeping, answer_always, leave_children, hook_breakpoints):
        with contextlib.suppress(Exception):
            step()


main()
