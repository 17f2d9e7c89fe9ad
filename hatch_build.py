"""Build hook: the JupyterLab extension goes into the wheel, and into editable installs, as built files.

Where node is missing, or what it needs cannot be fetched, the package is built without the extension:
the kernel needs none. `SPMD_LABEXTENSION=require` makes that an error, `skip` builds none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "spmd-kernel"
SOURCES = ("src", "style", "schema", "package.json", "yarn.lock", ".yarnrc.yml", "tsconfig.json")
JLPM = (sys.executable, "-c", "from jupyter_builder.jlpm import main; main()")
BUILDER = (sys.executable, "-c", "from jupyter_builder.main import main; main()")


class LabextensionHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / "labextension"
        if os.environ.get("SPMD_LABEXTENSION") == "skip" or not make(folder):
            return
        if self.target_name == "wheel":
            target = f"share/jupyter/labextensions/{NAME}"
            build_data["shared_data"][str(folder / "dist")] = target
            build_data["shared_data"][str(folder / "install.json")] = f"{target}/install.json"


def make(folder: Path) -> bool:
    """Build what is missing or old. False: there is nothing to install."""
    built = folder / "dist" / "package.json"
    if is_fresh(built, folder):
        return True
    if shutil.which("node") is None:
        return excuse("node is not installed", built)
    try:
        build(folder)
    except (subprocess.CalledProcessError, OSError) as error:
        return excuse(f"its build failed: {error}", built)
    return True


def is_fresh(built: Path, folder: Path) -> bool:
    paths = [folder / name for name in SOURCES]
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    newest = max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
    return built.is_file() and built.stat().st_mtime >= newest


def build(folder: Path) -> None:
    run(folder, *JLPM, "install", "--immutable")
    run(folder, "node", "node_modules/typescript/bin/tsc")
    shutil.rmtree(
        folder / "dist", ignore_errors=True
    )  # names of its files differ from build to build
    run(folder, *BUILDER, "build", ".")


def run(folder: Path, *command: str) -> None:
    """What it says is shown only if it fails: yarn says much."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        print(done.stdout[-4000:], file=sys.stderr)
        done.check_returncode()


def excuse(why: str, built: Path) -> bool:
    """Say that there is no extension; one that was built before is better than none."""
    if os.environ.get("SPMD_LABEXTENSION") == "require":
        raise RuntimeError(f"the JupyterLab extension cannot be built: {why}")
    old = built.is_file()
    what = "the JupyterLab extension is an older one" if old else "no JupyterLab extension"
    print(f"spmd-kernel: {what}: {why}; the kernel works without it", file=sys.stderr)
    return old


def test(folder: Path) -> None:
    """Type-check and run the unit tests of what needs no browser."""
    if not (folder / "node_modules").is_dir():
        run(folder, *JLPM, "install", "--immutable")
    run(folder, "node", "node_modules/typescript/bin/tsc", "-p", "tsconfig.test.json")
    files = sorted(map(str, folder.glob("build/test/tests/*.test.js")))
    run(folder, "node", "--test", *files)
    print(f"labextension: the tests of {len(files)} modules pass")


if __name__ == "__main__":  # for people: build what is old, then test
    labextension = Path(__file__).parent / "labextension"
    if not make(labextension):
        sys.exit(1)
    test(labextension)
