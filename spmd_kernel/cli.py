"""``spmd-kernel``: install, list and remove kernelspecs of ours; ``doctor`` looks for faults;
``where`` and ``request`` ask a kernel that runs.

A kernelspec of ours has ``metadata.spmd = {"kernel": NAME, "processes": N}``: it runs N of the
kernels that NAME describes.  Every refusal is two lines on stderr, what and ``hint:``, exit code 2.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jupyter_core.paths import jupyter_data_dir

from . import __version__
from .core.errors import UsageError
from .kernelspecs import Kernelspec, all_kernelspecs

KERNELS = Path("share", "jupyter", "kernels")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")  # jupyter_client takes these, and lowers the case
OWN_NAME = "spmd-python3"  # the one that the package itself installs


def main(argv: Sequence[str] | None = None) -> int:
    """The console script; returns the exit code (0, 1: doctor found a fault, 2: refused)."""
    try:
        options = _parser().parse_args(argv)
        refuse_windows(sys.platform)
        return int(options.run(options))
    except UsageError as error:
        print(f"spmd-kernel: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 2


def refuse_windows(platform: str) -> None:
    """Raise `UsageError` on Windows: ranks need Unix sockets, process groups and signals."""
    if platform in ("win32", "cygwin"):
        raise UsageError("Windows is not supported", "use Linux, for example in WSL 2")


# ---------------------------------------------------------------- commands


def install(options: argparse.Namespace) -> int:
    """Make a kernelspec that runs an installed one N times."""
    specs = all_kernelspecs()
    target = _target(specs, options.kernel)
    name = f"spmd-{target.name}" if options.name is None else options.name
    folder = _root(options) / _checked(name)
    _refuse_foreign(name, specs.get(name), folder)
    display_name = options.display_name or f"Distributed ({target.display_name})"
    raw = wrapper(target, display_name, options.processes)
    try:
        _write(folder, raw, _logos(specs))
    except OSError as error:
        raise UsageError(
            f"cannot write {folder}: {error.strerror or error}",
            "--user writes to your own folder, --prefix P below P",
        ) from error
    print(f"installed {name} in {folder}: {display_name}")
    if name not in all_kernelspecs():
        print(f"note: Jupyter does not look there; set JUPYTER_PATH={folder.parent.parent}")
    return 0


def show(_: argparse.Namespace) -> int:
    """List the kernelspecs of ours: what they run, and where they are."""
    rows = [("NAME", "KERNEL", "PROCESSES", "DISPLAY NAME", "WHERE")]
    for spec in ours(all_kernelspecs().values()):
        rows.append((spec.name, *_wrapped(spec), spec.display_name, str(spec.resource_dir)))
    if len(rows) == 1:
        print("no kernelspec of spmd-kernel is installed")
        print("hint: spmd-kernel install --kernel python3")
        return 0
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    return 0


def remove(options: argparse.Namespace) -> int:
    """Remove one kernelspec of ours."""
    specs = all_kernelspecs()
    spec = _known(specs, options.name)
    if not is_ours(spec):
        raise UsageError(
            f"{spec.name} is not a kernelspec of spmd-kernel",
            f"jupyter kernelspec remove {spec.name}",
        )
    folder = Path(spec.resource_dir)
    try:
        _delete(folder)
    except OSError as error:
        what = f"cannot remove {folder}: {error.strerror or error}"
        raise UsageError(what, "is it yours?") from error
    print(f"removed {spec.name} from {folder}")
    return 0


def examine(_: argparse.Namespace) -> int:
    """Say what is installed and what is missing; exit code 1 if there is a fault."""
    from . import doctor  # what it needs is not there on every system

    findings = list(doctor.examine())
    for finding in findings:
        print(f"{finding.level:5}  {finding.what}")
        if finding.hint:
            print(f"       hint: {finding.hint}")
    faults = sum(finding.level == "fault" for finding in findings)
    print(f"{faults} fault{'' if faults == 1 else 's'} found" if faults else "no fault found")
    return int(faults > 0)


# ---------------------------------------------------------------- kernels that run


def where(options: argparse.Namespace) -> int:
    """Say where every rank of a running kernel is right now: its Python stack."""
    data = _asked("where", {}, options)
    if data is not None:
        print(data["text"], end="")
    return int(data is None)


def request(options: argparse.Namespace) -> int:
    """Send a control request to a running kernel and print the answer as JSON."""
    from .io import client

    data = _asked(options.command, client.parsed(options.arguments), options)
    if data is not None:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    return int(data is None)


def _asked(
    command: str, arguments: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any] | None:
    """The data of the answer; ``None`` if it is an error, which has been said."""
    from .io import client

    path = options.connection or _only_kernel(command)
    reply = client.ask(path, command, arguments, options.seconds)
    if reply.get("status") == "ok":
        data: dict[str, Any] = reply["data"]
        return data
    print(f"spmd-kernel: {reply.get('evalue')}", file=sys.stderr)
    if reply.get("hint"):
        print(f"hint: {reply['hint']}", file=sys.stderr)
    return None


def _only_kernel(command: str) -> Path:
    """The newest; where there are several, only for what changes nothing."""
    from .core.control import COMMANDS
    from .io import client

    found = client.running()
    if not found:
        raise UsageError(
            "no kernel of spmd-kernel runs for this user, as far as Jupyter's runtime folder tells",
            "start a notebook, or name a connection file",
        )
    others = "\n".join(f"  {one.path}" for one in found)
    if len(found) > 1:
        if command in COMMANDS and COMMANDS[command].acts:
            raise UsageError(
                f"{len(found)} kernels run, and {command} changes something:\n{others}",
                "name one of them with --connection FILE",
            )
        print(f"{len(found)} kernels run, this is the newest of:\n{others}", file=sys.stderr)
    return found[0].path


# ---------------------------------------------------------------- kernelspecs of ours


def is_ours(spec: Kernelspec) -> bool:
    return isinstance(spec.metadata.get("spmd"), dict)


def ours(specs: Iterable[Kernelspec]) -> list[Kernelspec]:
    return [spec for spec in specs if is_ours(spec)]


def wrapper(target: Kernelspec, display_name: str, processes: int | str) -> dict[str, Any]:
    """The kernel.json that runs ``processes`` of ``target``, by this interpreter.

    The absolute path matters: the kernelspec may be used by a Jupyter of another environment.
    """
    return {
        "argv": [sys.executable, "-m", "spmd_kernel", "-f", "{connection_file}"],
        "display_name": display_name,
        "language": target.language,
        "interrupt_mode": "message",
        "metadata": {
            **({"debugger": True} if target.metadata.get("debugger") is True else {}),
            "spmd": {"kernel": target.name, "processes": processes},
        },
    }


def _known(specs: Mapping[str, Kernelspec], name: str) -> Kernelspec:
    if name.lower() not in specs:
        names = ", ".join(sorted(specs)) or "none"
        raise UsageError(f"there is no kernelspec {name!r}", f"installed are: {names}")
    return specs[name.lower()]


def _target(specs: Mapping[str, Kernelspec], name: str) -> Kernelspec:
    target = _known(specs, name)
    if is_ours(target):
        wrapped, _ = _wrapped(target)
        raise UsageError(
            f"{name} is itself a kernelspec of spmd-kernel",
            f"wrap the kernel that it runs: --kernel {wrapped}",
        )
    return target


def _wrapped(spec: Kernelspec) -> tuple[str, str]:
    """Target name and processes of a kernelspec of ours, as text."""
    spmd = spec.metadata["spmd"]
    return str(spmd.get("kernel", "python3")), str(spmd.get("processes", 1))


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a kernelspec's name",
            "lower-case letters and digits can, and after the first '.', '_' and '-'",
        )
    return name


def _refuse_foreign(name: str, known: Kernelspec | None, folder: Path) -> None:
    """Neither hide nor replace what is not ours, be it where Jupyter looks or not."""
    foreign = known is not None and not is_ours(known)
    if foreign or (folder.exists() and not _holds_ours(folder)):
        raise UsageError(
            f"{name} exists and is not a kernelspec of spmd-kernel", "choose another --name"
        )


def _holds_ours(folder: Path) -> bool:
    try:
        raw = json.loads((folder / "kernel.json").read_text(encoding="utf-8"))
        return isinstance(raw["metadata"]["spmd"], dict)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _root(options: argparse.Namespace) -> Path:
    """The kernels folder that the options mean; the user's own by default."""
    if options.prefix:
        return Path(options.prefix).absolute() / KERNELS
    if options.sys_prefix:
        return Path(sys.prefix) / KERNELS
    return Path(jupyter_data_dir()) / "kernels"


def _write(folder: Path, raw: dict[str, Any], logos: Mapping[str, bytes]) -> None:
    """Replace ``folder`` as a whole, so that a half-written kernelspec is never found."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".spmd-", dir=folder.parent) as scratch:
        made = Path(scratch, folder.name)
        made.mkdir()
        for name, picture in logos.items():
            (made / name).write_bytes(picture)
        text = json.dumps(raw, indent=2, ensure_ascii=False) + "\n"
        (made / "kernel.json").write_text(text, encoding="utf-8")
        if folder.exists():
            _delete(folder)
        made.rename(folder)


def _delete(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def _logos(specs: Mapping[str, Kernelspec]) -> dict[str, bytes]:
    """Ours, as the package installed them; none if its own kernelspec was removed."""
    if OWN_NAME not in specs:
        return {}
    files = Path(specs[OWN_NAME].resource_dir).glob("logo-*")
    return {file.name: file.read_bytes() for file in files}


# ---------------------------------------------------------------- arguments


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help")


def _processes(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes: 1, 2, … or auto")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="spmd-kernel", description="Kernelspecs that run a kernel N times.")
    parser.add_argument("--version", action="version", version=f"spmd-kernel {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _install_arguments(_command(commands, "install", install))
    _command(commands, "list", show)
    _command(commands, "remove", remove).add_argument("name", metavar="NAME")
    _command(commands, "doctor", examine)
    _running_arguments(commands)
    return parser


def _running_arguments(commands: Any) -> None:
    asking = _command(commands, "where", where)
    asking.add_argument("connection", nargs="?", metavar="CONNECTION_FILE", help=_CONNECTION)
    asking.add_argument("--seconds", type=float, default=30.0, help=_SECONDS)
    asking = _command(commands, "request", request)
    asking.add_argument("command", metavar="COMMAND", help="status, interrupt, … (docs/control.md)")
    asking.add_argument("arguments", nargs="?", default="{}", metavar="JSON", help="its arguments")
    asking.add_argument("--connection", metavar="FILE", help=_CONNECTION)
    asking.add_argument("--seconds", type=float, default=30.0, help=_SECONDS)


_CONNECTION = "default: that of the newest kernel of ours that runs"
_SECONDS = "how long to wait for the answer (30)"


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    help_line = (run.__doc__ or "").splitlines()[0]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_line, description=help_line
    )
    parser.set_defaults(run=run)
    return parser


def _install_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--kernel", required=True, metavar="NAME", help="the installed kernelspec to run N times")
    add("--name", metavar="NAME", help="of the new kernelspec (default: spmd-KERNEL)")
    add("--display-name", metavar="TEXT", help='default: "Distributed (…)"')
    add(
        "--processes",
        type=_processes,
        default=1,
        metavar="N",
        help="world size at start: 1, 2, … or auto",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="in your own Jupyter folder (default)")
    where.add_argument("--sys-prefix", action="store_true", help="in this Python's environment")
    where.add_argument("--prefix", metavar="P", help="in P/share/jupyter/kernels")


if __name__ == "__main__":
    sys.exit(main())
