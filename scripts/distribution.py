# SPDX-License-Identifier: BSD-3-Clause
"""Builds what is published: ``python -m scripts.distribution dist`` a wheel for this computer, with ``--all`` the sdist and from
it the wheels for this computer and for aarch64.

Wheels have the ExecuTorch delegate, compiled with the headers of the installed ExecuTorch. The same checkout gives the same
bytes: times in the archives are those of the last commit.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from openneutron.errors import MissingToolError
from openneutron.pytorch.run.delegate import executorch_package

ROOT = Path(__file__).parents[1]
CROSS_COMPILER = "aarch64-linux-gnu-g++"


def run(*command: str | Path, variables: dict[str, str] | None = None) -> None:
    """Run a command. Raises MissingToolError, with its output, where it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=_environment() | (variables or {}), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise MissingToolError(
            f"distribution: {' '.join(map(str, command))} ended with exit code {done.returncode}. It said:\n"
            f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )


def _environment() -> dict[str, str]:
    """Return the environment with the programs of this Python's environment first and the time of the last commit."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if "SOURCE_DATE_EPOCH" not in environment:
        asked = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            environment["SOURCE_DATE_EPOCH"] = asked.stdout.strip()
    return environment


def build_sdist(to: Path) -> Path:
    """Build the sdist of the checkout into a folder, and return its path."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", to, ROOT)
    (path,) = to.glob("*.tar.gz")
    return path


def build_wheel(source: Path, to: Path, work: Path, aarch64: bool = False) -> Path:
    """Build a wheel from a folder of sources into a folder of its own, and return its path. ``work`` takes the objects.

    ``aarch64``: for Linux on aarch64, with the cross compiler. Its tag is ``linux_...``, before the repair by auditwheel.
    """
    settings = [f"build-dir={work}", f"cmake.define.OPENNEUTRON_EXECUTORCH={executorch_package()}"]
    variables = {}
    if aarch64:
        settings.append(f"cmake.args=--toolchain={source / 'runtime' / 'ports' / 'host' / 'aarch64.cmake'}")
        variables["_PYTHON_HOST_PLATFORM"] = "linux-aarch64"  # sysconfig's own variable, from which the tag is made
    flags = [part for setting in settings for part in ("-C", setting)]
    run(
        *(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", to, *flags, source),
        variables=variables,
    )
    (path,) = to.glob("*.whl")
    return path


def unpacked(sdist: Path, to: Path) -> Path:
    """Unpack an sdist, and return the folder of its sources."""
    with tarfile.open(sdist) as archive:
        # Python before 3.11.4, such as Debian 12's, has no filters.
        archive.extractall(to, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder,) = to.iterdir()
    return folder


def repaired(wheel: Path, to: Path) -> None:
    """Write the wheel with the oldest manylinux tag that its libraries allow."""
    run("auditwheel", "repair", "--wheel-dir", to, wheel)


def main(to: Path, everything: bool) -> None:
    """Write the distribution into a folder, which is emptied first."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        work, source = Path(name), ROOT
        if everything:
            source = unpacked(build_sdist(to), work / "sources")
        repaired(build_wheel(source, work / "host", work / "host_objects"), to)
        crossed = everything and platform.machine() != "aarch64"
        if crossed and shutil.which(CROSS_COMPILER):
            repaired(build_wheel(source, work / "aarch64", work / "aarch64_objects", aarch64=True), to)
        elif crossed:
            print(f"{CROSS_COMPILER} is not installed: no wheel for aarch64. `make tools` installs it.")
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(to.iterdir()))
    for path in sorted(to.iterdir()):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m scripts.distribution")
    options.add_argument("folder", type=Path)
    options.add_argument("--all", action="store_true", help="the sdist too, and the wheel for aarch64")
    given = options.parse_args()
    main(given.folder.resolve(), given.all)
