"""The command line, on real folders: what it writes is what jupyter_client reads."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import jupyter_core.paths
import pytest
from jupyter_client.kernelspec import KernelSpecManager

from spmd_kernel import __version__, cli

OWN = Path(__file__).parents[2] / "kernelspec"
PLAIN = {
    "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Plain",
    "language": "python",
}


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Jupyter of its own: two kernelspecs, ``plain`` and ours; all other places are empty."""
    kernels = tmp_path / "prefix" / cli.KERNELS
    put(kernels / "plain", PLAIN)
    (kernels / "spmd-python3").symlink_to(OWN)
    monkeypatch.setenv("JUPYTER_PATH", str(kernels.parent))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(jupyter_core.paths, "ENV_JUPYTER_PATH", [])
    monkeypatch.setattr(jupyter_core.paths, "SYSTEM_JUPYTER_PATH", [])
    return tmp_path / "prefix"


def put(folder: Path, raw: dict[str, object]) -> None:
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(raw))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """What and hint of a refusal: two lines on stderr, exit code 2, nothing on stdout."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    what, hint = err.splitlines()
    assert what.startswith("spmd-kernel: ")
    assert hint.startswith("hint: ")
    return what.removeprefix("spmd-kernel: "), hint.removeprefix("hint: ")


def test_install_makes_a_kernelspec_that_jupyter_finds(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(
        capsys, "install", "--kernel", "plain", "--processes", "4", "--prefix", str(prefix)
    )

    assert (code, err) == (0, "")
    assert "spmd-plain" in out
    spec = KernelSpecManager().get_kernel_spec("spmd-plain")
    assert spec.argv == [sys.executable, "-m", "spmd_kernel", "-f", "{connection_file}"]
    assert spec.display_name == "Distributed (Plain)"
    assert spec.language == "python"
    assert spec.interrupt_mode == "message"
    assert spec.metadata == {"spmd": {"kernel": "plain", "processes": 4}}
    folder = Path(spec.resource_dir)
    assert folder == prefix / cli.KERNELS / "spmd-plain"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o055 == 0o055 & ~current_umask()
    logos = ["logo-32x32.png", "logo-64x64.png", "logo-svg.svg"]
    assert sorted(path.name for path in folder.glob("logo-*")) == logos
    assert (folder / logos[0]).read_bytes() == (OWN / logos[0]).read_bytes()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_install_goes_to_the_user_by_default(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "install", "--kernel", "plain")[0] == 0
    assert (tmp_path / "user/kernels/spmd-plain/kernel.json").exists()


def test_install_into_sys_prefix(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "install", "--kernel", "plain", "--sys-prefix")[0] == 0
    assert (tmp_path / "environment" / cli.KERNELS / "spmd-plain/kernel.json").exists()


def test_install_takes_names_and_replaces_its_own(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("install", "--kernel", "PLAIN", "--name", "mine", "--prefix", str(prefix))
    assert run(capsys, *words, "--display-name", "Größer", "--processes", "auto")[0] == 0
    spec = KernelSpecManager().get_kernel_spec("mine")
    assert (spec.display_name, spec.metadata["spmd"]["processes"]) == ("Größer", "auto")
    assert run(capsys, *words, "--display-name", "Ranks", "--processes", "2")[0] == 0

    spec = KernelSpecManager().get_kernel_spec("mine")
    assert (spec.display_name, spec.metadata["spmd"]["processes"]) == ("Ranks", 2)
    leftovers = {path.name for path in (prefix / cli.KERNELS).iterdir()}
    assert leftovers == {"plain", "spmd-python3", "mine"}


def test_install_over_a_linked_kernelspec_spares_what_it_links_to(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (OWN / "kernel.json").read_bytes()
    words = ("--name", "spmd-python3", "--processes", "3", "--prefix", str(prefix))
    assert run(capsys, "install", "--kernel", "plain", *words)[0] == 0

    spec = KernelSpecManager().get_kernel_spec("spmd-python3")
    assert spec.metadata["spmd"] == {"kernel": "plain", "processes": 3}
    assert len(list(Path(spec.resource_dir).glob("logo-*"))) == 3
    assert (OWN / "kernel.json").read_bytes() == before


def test_install_says_when_jupyter_will_not_look_there(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    _, out, _ = run(capsys, "install", "--kernel", "plain", "--prefix", str(elsewhere))
    assert f"JUPYTER_PATH={elsewhere}/share/jupyter" in out


def test_install_refuses_an_unknown_kernel_and_lists_the_installed(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what, hint = refused(capsys, "install", "--kernel", "julia-9")
    assert "'julia-9'" in what
    assert "plain" in hint
    assert "spmd-python3" in hint


def test_install_refuses_to_wrap_one_of_ours(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what, hint = refused(capsys, "install", "--kernel", "spmd-python3", "--name", "twice")
    assert "spmd-python3" in what
    assert "--kernel python3" in hint


def test_install_refuses_to_replace_a_foreign_kernelspec(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--kernel", "plain", "--name", "plain", "--prefix", str(prefix))
    what, hint = refused(capsys, "install", *words)
    assert "plain exists" in what
    assert "--name" in hint
    assert json.loads((prefix / cli.KERNELS / "plain/kernel.json").read_text()) == PLAIN


def test_install_refuses_to_replace_what_jupyter_does_not_see(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = tmp_path / "elsewhere" / cli.KERNELS
    put(kernels / "foreign", PLAIN)
    (kernels / "data").mkdir()
    for name in ("foreign", "data"):
        words = ("--name", name, "--prefix", str(tmp_path / "elsewhere"))
        what, _ = refused(capsys, "install", "--kernel", "plain", *words)
        assert f"{name} exists" in what
    assert json.loads((kernels / "foreign/kernel.json").read_text()) == PLAIN


@pytest.mark.parametrize(
    "name", ["a/b", "", ".", "..", ".hidden", "Ranks", "zwei wörter", "-x/../y"]
)
def test_install_refuses_names_that_jupyter_would_not_find(
    prefix: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    what, _ = refused(capsys, "install", "--kernel", "plain", f"--name={name}")
    assert repr(name) in what


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", "²", ""])
def test_install_refuses_process_counts_that_are_none(
    prefix: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    what, _ = refused(capsys, "install", "--kernel", "plain", f"--processes={number}")
    assert "number of processes" in what


def test_install_refuses_what_cannot_be_written(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    what, hint = refused(capsys, "install", "--kernel", "plain", "--prefix", str(blocked))
    assert str(blocked) in what
    assert "--user" in hint


def test_list_shows_ours_only(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "install", "--kernel", "plain", "--processes", "8", "--prefix", str(prefix))
    code, out, _ = run(capsys, "list")
    head, *rows = (line.split() for line in out.splitlines())
    assert code == 0
    assert head[:3] == ["NAME", "KERNEL", "PROCESSES"]
    assert {tuple(row[:3]) for row in rows} == {
        ("spmd-plain", "plain", "8"),
        ("spmd-python3", "python3", "1"),
    }
    assert str(prefix / cli.KERNELS / "spmd-plain") in out


def test_list_of_nothing_says_how_to_begin(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (prefix / cli.KERNELS / "spmd-python3").unlink()
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "spmd-kernel install" in out


def test_remove_takes_ours_and_nothing_else(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "install", "--kernel", "plain", "--prefix", str(prefix))
    assert run(capsys, "remove", "spmd-plain")[0] == 0
    assert not (prefix / cli.KERNELS / "spmd-plain").exists()

    what, hint = refused(capsys, "remove", "plain")
    assert "not a kernelspec of spmd-kernel" in what
    assert "jupyter kernelspec remove plain" in hint
    assert (prefix / cli.KERNELS / "plain").exists()

    what, hint = refused(capsys, "remove", "spmd-plain")
    assert "'spmd-plain'" in what
    assert "plain" in hint


def test_remove_of_a_link_spares_what_it_links_to(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "remove", "spmd-python3")[0] == 0
    assert not (prefix / cli.KERNELS / "spmd-python3").exists()
    assert (OWN / "kernel.json").exists()


@pytest.mark.parametrize(
    "words", [["install", "--kernel", "plain"], ["list"], ["remove", "spmd-python3"], ["doctor"]]
)
def test_every_command_refuses_windows(
    prefix: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    what, hint = refused(capsys, *words)
    assert what == "Windows is not supported"
    assert "WSL" in hint


@pytest.mark.parametrize("words", [[], ["instal"], ["list", "--all"], ["install"], ["remove"]])
def test_wrong_usage_is_one_line_and_a_hint(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    _, hint = refused(capsys, *words)
    assert "--help" in hint


def test_version_from_a_real_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spmd_kernel.cli", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=OWN.parent,
        check=True,
    )
    assert done.stdout.split() == ["spmd-kernel", __version__]


def test_doctor_on_this_machine(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor")
    assert code == 0, out
    assert "spmd-python3" in out
    assert "python3: " in out


def test_doctor_names_each_fault_with_its_hint(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        prefix / cli.KERNELS / "spmd-lost",
        {**PLAIN, "metadata": {"spmd": {"kernel": "gone", "processes": 2}}},
    )
    monkeypatch.setenv("SPMD_PROCESSES", "many")
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "spmd-lost runs gone" in out
    assert "SPMD_PROCESSES='many'" in out
    assert out.splitlines()[-1] == "2 faults found"
    assert out.count("\nfault ") == 2
