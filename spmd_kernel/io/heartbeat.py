"""The heartbeat: an echo that runs in libzmq, so it beats while Python is busy."""

from __future__ import annotations

import contextlib
import threading

import zmq


class Heartbeat:
    """Echoes on an already bound ROUTER from a thread of its own, which then owns the socket.

    `close` ends the thread; so does the end of the context.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> None:
        address = f"inproc://heartbeat-{id(self)}"
        orders = context.socket(zmq.PAIR)
        orders.bind(address)
        self._steer = context.socket(zmq.PAIR)
        self._steer.linger = 0
        self._steer.connect(address)
        self._thread = threading.Thread(
            target=_echo, args=(socket, orders), name="heartbeat", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        if self._steer.closed:
            return
        with contextlib.suppress(zmq.ContextTerminated):  # which has ended the thread
            self._steer.send(b"TERMINATE")
        self._thread.join()
        self._steer.close()


def _echo(socket: zmq.Socket[bytes], orders: zmq.Socket[bytes]) -> None:
    with contextlib.suppress(zmq.ContextTerminated):
        zmq.proxy_steerable(socket, socket, None, orders)
    socket.close(0)
    orders.close(0)
