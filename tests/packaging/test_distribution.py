# SPDX-License-Identifier: BSD-3-Clause
"""The sdist and the wheel that is built from it: their files, their metadata, and the package in use without a compiler."""

from __future__ import annotations

import base64
import csv
import email
import hashlib
import io
import platform
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

import openneutron
from scripts import distribution
from tests.support.tools import required

pytest.importorskip("executorch")

MOST_BYTES = 2_340_000
"""Of the wheel."""

NEEDED = {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6"}
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
"""The symbols of manylinux_2_28 (PEP 600), the oldest Linux that ExecuTorch's wheels allow."""


@dataclass(frozen=True, slots=True)
class Built:
    """The names in the sdist, and the files in the wheel by their names."""

    sdist: frozenset[str]
    wheel: Path
    files: Mapping[str, bytes]

    def metadata(self, name: str) -> Message:
        return email.message_from_bytes(self.files[f"openneutron-{openneutron.__version__}.dist-info/{name}"])

    def libraries(self) -> dict[str, bytes]:
        return {name: data for name, data in self.files.items() if name.endswith(".so")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("distribution")
    sdist = distribution.build_sdist(folder / "sdist")
    with tarfile.open(sdist) as archive:
        names = frozenset(item.name.partition("/")[2] for item in archive if item.isfile() or item.issym())
    source = distribution.unpacked(sdist, folder / "sources")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CCACHE_BASEDIR", str(source))
        # A folder in the sources, as pip has: a compiler cache knows the paths from there to the sources.
        wheel = distribution.build_wheel(source, folder / "wheel", source / "build" / "objects")
    with zipfile.ZipFile(wheel) as archive:
        return Built(names, wheel, {name: archive.read(name) for name in archive.namelist()})


@pytest.fixture(scope="module")
def site(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the wheel."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(folder)
    return folder


def tracked(root: Path, *folders: str) -> set[str]:
    """Return the files of the checkout that git knows, or would after `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (root / name).is_file()}


def test_the_sdist_is_the_checkout(built: Built, root: Path) -> None:
    """All of it, with documentation and tests: whoever packages it further can build and check everything."""
    assert built.sdist - {"PKG-INFO"} == tracked(root)


def test_the_wheel_has_the_package_the_runtime_and_three_libraries(built: Built, root: Path) -> None:
    package = {name.removeprefix("src/") for name in tracked(root, "src/openneutron")}
    runtime = {f"openneutron/_{name}" for name in tracked(root, "runtime")}
    libraries = {"simulator/libneutron.so", "device_model/libneutron_device_model.so"}
    wanted = package | runtime | {"openneutron/_runtime/LICENSE", *(f"openneutron/device/{name}" for name in libraries)}
    found = {name for name in built.files if ".dist-info/" not in name}
    (delegate,) = found - wanted
    assert re.fullmatch(r"openneutron/_delegate/neutron_backend-\d+(\.\d+)+-[0-9a-f]{16}\.so", delegate)
    assert wanted <= found
    assert {name for name in built.files if "LICENSE" in name} > {"openneutron/_runtime/LICENSE"}
    assert built.wheel.stat().st_size < MOST_BYTES


def test_the_record_has_every_file_with_its_digest(built: Built) -> None:
    name = f"openneutron-{openneutron.__version__}.dist-info/RECORD"
    rows = {path: (digest, size) for path, digest, size in csv.reader(io.StringIO(built.files[name].decode()))}
    assert rows.pop(name) == ("", "")
    wanted = {}
    for path, data in built.files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        wanted[path] = (f"sha256={digest}", str(len(data)))
    del wanted[name]
    assert rows == wanted


def test_the_metadata_is_that_of_the_project(built: Built, root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    metadata = built.metadata("METADATA")
    assert (metadata["Name"], metadata["Version"]) == ("openneutron", openneutron.__version__)
    assert metadata["Requires-Python"] == project["requires-python"]
    assert set(metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    described = built.files[f"openneutron-{openneutron.__version__}.dist-info/METADATA"].decode().partition("\n\n")[2]
    assert described.strip() == (root / "README.md").read_text().strip()
    wheel = built.metadata("WHEEL")
    assert (wheel["Root-Is-Purelib"], wheel["Tag"]) == ("false", f"py3-none-linux_{platform.machine()}")


def test_no_path_of_this_computer_is_in_it(built: Built, root: Path) -> None:
    """No source asks for its path either: with a compiler cache it is a relative one."""
    sources = [path for path in (root / "runtime").rglob("*.[ch]*") if path.is_file()]
    assert [path for path in sources if re.search(r"__FILE__|<c?assert(\.h)?>", path.read_text(errors="replace"))] == []
    places = {str(root), str(built.wheel.parents[1]), sys.prefix, str(Path.home())} - {"/"}
    found = [(name, place) for name, data in built.files.items() for place in places if f"{place}/".encode() in data]
    assert found == []


def test_the_libraries_need_what_every_linux_has(built: Built, tmp_path: Path) -> None:
    for name, data in built.libraries().items():
        path = tmp_path / Path(name).name
        path.write_bytes(data)
        command = [required("readelf"), "--wide", "--dynamic", "--version-info", str(path)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"\(NEEDED\).*\[(.*)\]", listed)) <= NEEDED, name
        assert "RUNPATH" not in listed and "RPATH" not in listed
        versions = re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_([\d.]+)", listed)
        assert versions
        newer = [(kind, number) for kind, number in versions if tuple(map(int, number.split("."))) > NEWEST[kind]]
        assert newer == [], name


def ran(site: Path, folder: Path, *command: str) -> str:
    """Return what a Python program prints in an empty folder, with the wheel's package first and no program on the path."""
    environment = {"PATH": str(folder / "nothing"), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=folder, capture_output=True, text=True, check=False, env={**environment, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TO_A_PTE_AND_BACK = """
import importlib.metadata
from openneutron.cli import main
from openneutron.errors import MissingToolError
from openneutron.pytorch.run import delegate
assert main(["compile", "cifarnet", "-o", "cifarnet.pte", "--quiet"]) == 0
assert main(["run", "cifarnet.pte", "--random", "1"]) == 0
print(delegate.load())
package = delegate.executorch_package()
assert delegate.included(package)
importlib.metadata.version = lambda name: "1.5.0"  # another ExecuTorch
assert not delegate.included(package)
try:
    delegate.build(package)
except MissingToolError as error:
    print(error)
"""


def test_a_pte_runs_without_a_compiler_and_for_another_executorch_the_delegate_is_compiled(
    site: Path, tmp_path: Path
) -> None:
    said, *_, loaded, error = ran(site, tmp_path, "-c", TO_A_PTE_AND_BACK).splitlines()
    assert said == "cifarnet.pte: 1 delegate on the simulated NPU"
    assert Path(loaded).parent == site / "openneutron" / "_delegate"
    assert error == (
        "delegate: there is no C++ compiler (c++, g++, clang++); running a .pte on this computer takes one, once. Install "
        "one (Debian: apt install g++), or set CXX to yours."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["cifarnet.pte"]
