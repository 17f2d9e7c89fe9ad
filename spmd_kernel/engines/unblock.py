"""Ends a wait inside C code, from outside: the process's TCP connections to its peers are shut down.

A collective of gloo, whose own timeout is 30 minutes, then fails at once, and Python can handle the
SIGINT that it could not.  Only connections of which both ends belong to this kernel's ranks are
touched.  pidfd_getfd(2) gives us the rank's socket; where it is not permitted the rank itself is told
which ones to shut (`Unblocked.refused`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ..core.model import Rank

PIDFD_GETFD = 438  # the number is the same on every architecture but alpha
Address = tuple[str, int]
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Connection:
    """An established TCP connection as one of its two processes has it."""

    fd: int
    inode: int
    local: Address
    remote: Address


def unblock(
    pids: Mapping[Rank, int], ranks: Collection[Rank], ports: Collection[int], *, store: bool
) -> tuple[dict[Rank, int], dict[Rank, tuple[tuple[int, int], ...]]]:
    """``pids`` are all ranks of this kernel; see `model.Unblock`. Returns (closed, refused)."""
    rows = table()
    of = {rank: list(connections(pid, rows)) for rank, pid in pids.items()}
    ends = {rank: {(c.local, c.remote) for c in found} for rank, found in of.items()}
    closed: dict[Rank, int] = {}
    refused: dict[Rank, tuple[tuple[int, int], ...]] = {}
    for rank in ranks:
        if rank not in of:
            continue
        if store:
            chosen = [found for found in of[rank] if found.remote[1] in ports]
        else:
            others = set().union(*(known for peer, known in ends.items() if peer != rank))
            chosen = [c for c in of[rank] if _is_between(c, others, ports)]
        left = [found for found in chosen if not shut(pids[rank], found)]
        closed[rank] = len(chosen) - len(left)
        if left:
            refused[rank] = tuple((found.fd, found.inode) for found in left)
    return closed, refused


def _is_between(
    connection: Connection, others: Collection[tuple[Address, Address]], ports: Collection[int]
) -> bool:
    spared = connection.local[1] in ports or connection.remote[1] in ports
    return not spared and (connection.remote, connection.local) in others


def connections(pid: int, rows: Mapping[int, tuple[Address, Address]]) -> Iterator[Connection]:
    """Those of a process; two descriptors of one connection are one."""
    seen: set[int] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            inode = _inode(pid, int(name))
            if inode in rows and inode not in seen:
                seen.add(inode)
                yield Connection(int(name), inode, *rows[inode])


def _inode(pid: int, fd: int) -> int:
    try:
        found = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def table() -> dict[int, tuple[Address, Address]]:
    """Local and remote address of every established connection, by inode (proc_net(5))."""
    rows: dict[int, tuple[Address, Address]] = {}
    for family in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{family}") as file:
            next(file, None)
            for line in file:
                fields = line.split()
                if fields[3] == "01":
                    rows[int(fields[9])] = _address(fields[1]), _address(fields[2])
    return rows


def _address(text: str) -> Address:
    """Host and port; an IPv4 address in IPv6 form is the IPv4 address."""
    host, _, port = text.partition(":")
    mapped = host.startswith("0000000000000000FFFF0000")
    return host[24:] if mapped else host, int(port, 16)


def shut(pid: int, connection: Connection) -> bool:
    """Shut down a connection of another process. False: the system does not let us."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        fd = _syscall()(PIDFD_GETFD, pidfd, connection.fd, 0)
    finally:
        os.close(pidfd)
    if fd < 0:
        # Closed meanwhile: that is what we wanted.
        return _inode(pid, connection.fd) != connection.inode
    _shutdown_if_same(fd, connection.inode)
    return True


def _shutdown_if_same(fd: int, inode: int) -> None:
    """``fd`` is ours now.  The number may have been reused since we looked."""
    if os.fstat(fd).st_ino != inode:
        os.close(fd)
        return
    with contextlib.suppress(OSError), socket.socket(fileno=fd) as found:
        found.shutdown(socket.SHUT_RDWR)


def _syscall() -> ctypes._NamedFuncPointer:
    return ctypes.CDLL(None, use_errno=True).syscall
