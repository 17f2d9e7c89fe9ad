"""What is installed, what is missing: one `Finding` per fact, with one hint per fault.

Looks only; all it makes is a socket in a private folder, which it removes.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jupyter_core.paths import jupyter_path

from .engines.rundir import RunDirectory
from .io.machine import survey
from .kernelspecs import Kernelspec, all_kernelspecs

REQUIRED = {"pyzmq": (26,), "jupyter_core": (5, 3), "ipykernel": (6, 29)}  # as pyproject.toml
RANK_BYTES = 40 << 20  # what a bare ipykernel rank needs
FILES = 60, 8  # descriptors of the kernel process: a base, and more per rank
IMPORT_SECONDS = 60.0
SHORT_FOLDER = "set TMPDIR to a short, writable path on this machine's own disk, such as /tmp"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Literal["ok", "note", "fault"]
    what: str
    hint: str = ""


Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Variable:
    pattern: str
    meaning: str


COUNT = Variable("(auto|0*[1-9][0-9]*)?", "a number of processes: 1, 2, … or auto")
VARIABLES = {
    "SPMD_PROCESSES": COUNT,
    "SPMD_MAX_PROCESSES": COUNT,
    "SPMD_OUTPUT": Variable("live|grouped", "live or grouped"),
    "SPMD_KEPT_OUTPUTS": Variable("[0-9]{0,6}", "a number of megabytes"),
    "SPMD_STREAM_LIMIT": Variable(r"(\d{1,6}(\.\d{1,3})?)?", "a number of megabytes; 0: no limit"),
    "SPMD_WATCH": Variable(r"off|[1-9]\d*(\.\d+)?", "seconds from 1 on, or off"),
    "SPMD_LOG": Variable("(?i:debug|info|warning|error|critical)", "a level such as INFO"),
}


def examine(environ: Mapping[str, str] = os.environ) -> Findings:
    """All findings, in the order in which a fault would bite."""
    yield from python(sys.version_info[:3], sys.platform)
    yield from packages(importlib.metadata.version)
    yield from kernelspecs(all_kernelspecs())
    yield from labextension(jupyter_path("labextensions"))
    yield from run_directory(environ)
    yield from open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield from threads(environ, len(affinity()))
    yield from variables(environ)
    yield from memory(survey({}, environ).memory_available)


def python(version: Sequence[int], platform: str) -> Findings:
    text = ".".join(map(str, version))
    if tuple(version) < (3, 11):
        yield Finding("fault", f"Python {text} is too old", "use Python 3.11 or newer")
    elif platform == "darwin":
        yield Finding(
            "note",
            f"Python {text} on macOS: best effort, untested",
            "if the kernel is killed, look for ranks that outlived it",
        )
    else:
        yield Finding("ok", f"Python {text} on {platform}: {sys.executable}")


def packages(version_of: Callable[[str], str]) -> Findings:
    for name, least in REQUIRED.items():
        wanted = f"{name}>={'.'.join(map(str, least))}"
        try:
            version = version_of(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("fault", f"{name} is missing", f"pip install '{wanted}'")
            continue
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < least:
            yield Finding("fault", f"{name} {version} is too old", f"pip install '{wanted}'")
        else:
            yield Finding("ok", f"{name} {version}")


# ---------------------------------------------------------------- kernelspecs


def kernelspecs(specs: Mapping[str, Kernelspec]) -> Findings:
    """Ours, and for each the kernel that it runs."""
    ours = [spec for spec in specs.values() if isinstance(spec.metadata.get("spmd"), dict)]
    if not ours:
        yield Finding(
            "fault",
            "Jupyter finds no kernelspec of spmd-kernel",
            "spmd-kernel install --kernel python3, or install the package again",
        )
    examined: set[str] = set()
    for spec in ours:
        yield from _own(spec)
        target = str(spec.metadata["spmd"].get("kernel", "python3"))
        if target not in examined:
            examined.add(target)
            yield from _target(specs, target, spec)


def labextension(folders: Sequence[str]) -> Findings:
    """JupyterLab's rank tabs and the like; nothing that the kernel needs."""
    places = [os.path.join(folder, "spmd-kernel") for folder in folders]
    found = [path for path in places if os.path.isfile(os.path.join(path, "package.json"))]
    if found:
        yield Finding("ok", f"JupyterLab extension: {found[0]}")
    else:
        yield Finding(
            "note",
            "JupyterLab has no rank tabs here: its extension is not installed",
            "install spmd-kernel where JupyterLab is; from a checkout, that builds it if node is there",
        )


def _own(spec: Kernelspec) -> Findings:
    interpreter = _program(spec)
    if interpreter is None:
        yield Finding(
            "fault",
            f"kernelspec {spec.name}: its interpreter {spec.argv[0]} does not exist",
            f"spmd-kernel remove {spec.name}, then install it again",
        )
    else:
        yield Finding("ok", f"kernelspec {spec.name} ({spec.display_name}): {spec.resource_dir}")


def _target(specs: Mapping[str, Kernelspec], name: str, owner: Kernelspec) -> Findings:
    target = specs.get(name)
    if target is None:
        yield Finding(
            "fault",
            f"kernelspec {owner.name} runs {name}, which Jupyter does not find",
            f"install that kernel (found: {', '.join(sorted(specs))})",
        )
    elif isinstance(target.metadata.get("spmd"), dict):
        yield Finding(
            "fault",
            f"kernelspec {owner.name} runs {name}, which is one of ours",
            f"spmd-kernel remove {owner.name}, then wrap a plain kernel",
        )
    else:
        yield from _interpreter(target)


def _interpreter(target: Kernelspec) -> Findings:
    program = _program(target)
    if program is None:
        yield Finding(
            "fault",
            f"kernel {target.name}: {target.argv[0]} does not exist",
            "its environment was moved or removed: install that kernel again",
        )
    elif not target.is_ipykernel:
        yield Finding("ok", f"kernel {target.name}: {program}")
    elif problem := import_problem(program):
        yield Finding(
            "fault",
            f"kernel {target.name}: {program} cannot import ipykernel: {problem}",
            f"{program} -m pip install ipykernel",
        )
    else:
        yield Finding("ok", f"kernel {target.name}: {program} imports ipykernel")


def _program(spec: Kernelspec) -> str | None:
    """The program that would be run, if it exists."""
    return shutil.which(spec.command("")[0])


def import_problem(program: str, seconds: float = IMPORT_SECONDS) -> str:
    """The last line of the traceback, or nothing if ``program`` imports ipykernel."""
    try:
        done = subprocess.run(
            [program, "-c", "import ipykernel.kernelapp"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1] if done.returncode else ""


# ---------------------------------------------------------------- the machine


def run_directory(environ: Mapping[str, str]) -> Findings:
    """The ranks' sockets live in one: short enough a path, writable, sockets possible."""
    try:
        directory = RunDirectory.create(environ)
    except OSError as error:
        reason = error.strerror or str(error)
        yield Finding("fault", f"no folder for the ranks' sockets: {reason}", SHORT_FOLDER)
        return
    parent = os.path.dirname(directory.path)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(os.path.join(directory.path, "doctor"))
    except OSError as error:
        what = f"no socket can be made below {parent}: {error.strerror or error}"
        yield Finding("fault", what, SHORT_FOLDER)
    else:
        yield Finding("ok", f"folder for the ranks' sockets: below {parent}")
    finally:
        directory.remove()


def open_files(soft: int, hard: int) -> Findings:
    base, per_rank = FILES
    if hard == resource.RLIM_INFINITY:
        yield Finding("ok", f"open files: {soft}, may be raised without limit")
        return
    ranks = max(hard - base, 0) // per_rank
    what = f"open files: {soft}, at most {hard}: enough for {ranks} ranks"
    if ranks < 2:
        yield Finding("fault", what, "raise the limit: ulimit -Hn 4096")
    elif ranks < 16:
        yield Finding("note", what, "for more, raise the limit: ulimit -Hn 4096")
    else:
        yield Finding("ok", what)


def threads(environ: Mapping[str, str], cores: int) -> Findings:
    value = environ.get("OMP_NUM_THREADS", "")
    if not value:
        yield Finding(
            "ok", f"OMP_NUM_THREADS is not set: 1 in each of several ranks; {cores} cores"
        )
    elif value.isdigit() and int(value) <= 1:
        yield Finding("ok", f"OMP_NUM_THREADS={value}; {cores} cores")
    else:
        yield Finding(
            "note",
            f"OMP_NUM_THREADS={value} holds in every rank; {cores} cores",
            "unset it, and several ranks get 1 each",
        )


def variables(environ: Mapping[str, str]) -> Findings:
    """Ours: each that is set is read, and has a value that it can have."""
    for name in sorted(environ):
        if not name.startswith("SPMD_"):
            continue
        value, known = environ[name], VARIABLES.get(name)
        if known is None:
            names = ", ".join(VARIABLES)
            yield Finding("note", f"{name} is not a variable that is read", f"these are: {names}")
        elif not re.fullmatch(known.pattern, value.strip()):
            hint = f"unset {name}, or give it {known.meaning}"
            yield Finding("fault", f"{name}={value!r} is not {known.meaning}", hint)
        else:
            yield Finding("ok", f"{name}={value}")


def memory(available: int | None) -> Findings:
    if available is None:
        yield Finding("note", "available memory: unknown")
        return
    ranks = available // RANK_BYTES
    what = f"memory: {available >> 20} MB available, enough for {ranks} bare ranks"
    if ranks < 2:
        yield Finding("fault", what, "free some memory: a bare rank needs 40 MB")
    else:
        yield Finding("ok", what)


def affinity() -> set[int]:
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
