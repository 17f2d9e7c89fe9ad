"""Everything that is decided once, at start: from our argv, environment and kernelspec."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import kernelspecs
from .core.errors import UsageError
from .core.magics.processes import MOST
from .core.magics.viewing import read_watch
from .core.model import Settings
from .core.outputs import MODES
from .gpus import visible_gpus
from .kernelspecs import Kernelspec

SETUP = Path(__file__).parent / "rank" / "setup.py"
COMPARE = SETUP.with_name("compare.py")
DEBUGGING = SETUP.with_name("debugging.py")
OPTIONS = {"-f": "-f", "--f": "-f", "--record": "--record"}
KEPT_MEGABYTES = "8"  # of outputs, for clients that come back
STREAM_MEGABYTES = "64"  # of text that a cell shows
WITHOUT_GPU = 2  # processes of `auto`; the same as in `%processes auto`
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


@dataclass(frozen=True, slots=True)
class Start:
    """What the driver needs.  ``settings.ports`` is still empty: it holds them."""

    settings: Settings
    connection_file: str
    kernelspec: Kernelspec  # the ranks'
    record: str | None = None  # file for the events, to replay them (`--record FILE`)


def from_environment(
    argv: Sequence[str], environ: Mapping[str, str], platform: str = sys.platform
) -> Start:
    """Read our start; ``argv`` without the program's name. Raises `UsageError`.

    ``SPMD_PROCESSES`` (a number, or ``auto``: one per visible GPU, or else 2) wins over the
    ``metadata.spmd.processes`` of our kernelspec; ``SPMD_MAX_PROCESSES`` limits both.
    ``SPMD_OUTPUT`` is how outputs are shown, whatever ``%processes --output`` says, and
    ``SPMD_WATCH`` after how many seconds a hang is told of, whatever ``--watch`` says.
    ``SPMD_KEPT_OUTPUTS``: how many megabytes of outputs clients can ask for again.
    ``SPMD_STREAM_LIMIT``: how many megabytes of text a cell shows.
    """
    if platform in ("win32", "cygwin"):
        raise UsageError("Windows is not supported", "run Jupyter inside WSL2")
    own, rest = _split(argv)
    connection_file = _named(own)
    connection = _connection(connection_file)
    wanted = _spmd_metadata(str(connection.get("kernel_name") or ""))
    kernelspec = _target(str(wanted.get("kernel") or kernelspecs.NATIVE))
    limit = _variable(environ, "SPMD_MAX_PROCESSES")
    output = environ.get("SPMD_OUTPUT", "").strip()
    if output not in ("", *MODES):
        raise UsageError(f"SPMD_OUTPUT is {output!r}", f"SPMD_OUTPUT is {' or '.join(MODES)}")
    pinned = _variable(environ, "SPMD_PROCESSES")
    configured = _count(wanted.get("processes", 1), "metadata.spmd.processes", environ)
    settings = Settings(
        session=uuid.uuid4().hex,
        kernel=kernelspec.name,
        language=kernelspec.language,
        processes=_limited(pinned or configured, limit),
        pinned=_limited(pinned, limit) if pinned else None,
        max_processes=limit,
        output=next((mode for mode in MODES if mode == output), None),
        watch=_watch(environ),
        environ=dict(environ),
        argv=tuple(rest),
        linux=platform.startswith("linux"),
        setup=setup_code() if kernelspec.is_python else "",
        debugging=setup_code(DEBUGGING) if kernelspec.is_python else "",
        compare=str(COMPARE) if kernelspec.is_python else "",
        kept_outputs=_kept_outputs(environ),
        stream_limit=_stream_limit(environ),
        spill_folder=spill_folder(environ, platform),
        # JupyterLab calls a file "Cell [3]" if there is "ipykernel_" in its path.
        cells=os.path.join(tempfile.gettempdir(), f"spmd_ipykernel_cells_{os.getuid()}", ""),
        front={name: connection[name] for c in CHANNELS if (name := f"{c}_port") in connection},
    )
    return Start(settings, connection_file, kernelspec, own.get("--record") or None)


def setup_code(path: Path = SETUP) -> str:
    """Code that runs a file in a namespace of its own, so that the user's stays as it was."""
    file = str(path)
    loader = f'__import__("importlib.machinery").machinery.SourceFileLoader("", {file!r})'
    namespace = {"__name__": f"spmd_kernel.rank.{path.stem}", "__file__": file}
    return f'exec({loader}.get_code(""), {namespace!r})'  # compiled once, not in each rank


def _split(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Our own options, and the arguments that are not ours: the ranks get them."""
    own: dict[str, str] = {}
    rest, words = [], iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in OPTIONS:
            own[OPTIONS[flag]] = value if equals else next(words, "")
        else:
            rest.append(word)
    return own, rest


def _named(own: Mapping[str, str]) -> str:
    """The connection file's absolute path."""
    if not own.get("-f"):
        raise UsageError(
            "no connection file: -f FILE is missing",
            "a kernel is started by Jupyter: choose it in a notebook, or `jupyter console --kernel`",
        )
    return os.path.abspath(own["-f"])


def _connection(path: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"the connection file {path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"the connection file {path} holds no JSON object")
    return value


def _spmd_metadata(own_name: str) -> Mapping[str, Any]:
    """``metadata.spmd`` of the kernelspec that started us; empty if there is none to be found."""
    try:
        wanted = kernelspecs.find(own_name).metadata.get("spmd") if own_name else None
    except UsageError:
        return {}  # started by hand, or from a kernelspec that only our client can see
    if wanted is not None and not isinstance(wanted, Mapping):
        raise UsageError(
            f"metadata.spmd of kernelspec {own_name!r} is {json.dumps(wanted)}, not an object",
            'for example {"kernel": "python3", "processes": 4}',
        )
    return wanted or {}


def _target(name: str) -> Kernelspec:
    kernelspec = kernelspecs.find(name)
    if kernelspec.is_distributed:
        raise UsageError(
            f"kernelspec {name!r} is itself a distributed one",
            'set metadata.spmd.kernel to an ordinary kernel, such as "python3"',
        )
    return kernelspec


def _variable(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return _count(text, name, environ) if text else None


def _kept_outputs(environ: Mapping[str, str]) -> int:
    """In bytes."""
    text = environ.get("SPMD_KEPT_OUTPUTS", "").strip() or KEPT_MEGABYTES
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise UsageError(f"SPMD_KEPT_OUTPUTS is {text!r}", "a number of megabytes; 0: keep none")
    return int(text) * 1_000_000


def _stream_limit(environ: Mapping[str, str]) -> int:
    """In bytes."""
    text = environ.get("SPMD_STREAM_LIMIT", "").strip() or STREAM_MEGABYTES
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text, re.ASCII):
        raise UsageError(f"SPMD_STREAM_LIMIT is {text!r}", "a number of megabytes; 0: no limit")
    return int(float(text) * 1_000_000)


def spill_folder(environ: Mapping[str, str], platform: str) -> str:
    """Below the user's cache directory: /tmp is in memory on many machines."""
    home = environ.get("HOME") or os.path.expanduser("~")
    usual = os.path.join(home, "Library/Caches" if platform == "darwin" else ".cache")
    cache = environ.get("XDG_CACHE_HOME", "")
    return os.path.join(cache if os.path.isabs(cache) else usual, "spmd-kernel", "outputs")


def _watch(environ: Mapping[str, str]) -> float | None:
    text = environ.get("SPMD_WATCH", "").strip()
    try:
        return read_watch(text) if text else None
    except UsageError:
        raise UsageError(
            f"SPMD_WATCH is {text!r}", "SPMD_WATCH is a number of seconds from 1 on, or off"
        ) from None


def _count(value: Any, where: str, environ: Mapping[str, str]) -> int:
    if value == "auto":
        return len(visible_gpus(environ)) or WITHOUT_GPU
    text = str(value)
    if isinstance(value, (str, int)) and text.isascii() and text.isdigit() and int(text) > 0:
        return _bounded(int(text), where)
    raise UsageError(
        f"{where} is {value!r}: not a number of processes", f"{where} is 1, 2, … or auto"
    )


def _bounded(count: int, where: str) -> int:
    if count > MOST:
        raise UsageError(
            f"{where} is {count}: more than {MOST} ranks do not run on one machine",
            "write a smaller number",
        )
    return count


def _limited(count: int, limit: int | None) -> int:
    return min(count, limit) if limit else count
