# SPDX-License-Identifier: BSD-3-Clause
"""Models in one folder: one copy of each kernel, arenas of the application, threads, and refusals."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import InvalidOptionError
from openneutron.features.export.bundle import export_bundle
from scripts.published_networks import Chain
from tests.export.bundles import SANITIZERS, checked_on_the_host, host_program
from tests.support import oracle
from tests.support.litert_files import graph_file

pytestmark = pytest.mark.without_tiles("a bundle is firmware of a core that runs the kernels")

ARENA = Path(__file__).parent / "arena_main.c"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model whose inputs and outputs are outside its working memory, and one that has them inside."""
    folder = tmp_path_factory.mktemp("models")
    made = []
    for name, channels, place in (("first", 8, "caller"), ("second", 16, "arena")):
        graph = Chain(name, (1, 6, 6, 4)).conv(16, 3).conv(channels, 3).graph()
        path = folder / f"{name}.tflite"
        path.write_bytes(graph_file(graph, compile_graph(graph, oracle.TARGET, CompileOptions(io_place=place)).program))
        made.append(path)
    return made


@pytest.fixture(scope="module")
def folder(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several") / "bundle"
    bundle = export_bundle(files, folder)
    first, second = bundle.deployments
    assert [each.prefix for each in (first, second)] == ["first", "second"]
    assert bundle.kernels == ("conv_2d_s8",)
    separate = [export_bundle(file, folder.parent / file.stem).memory for file in files]
    assert bundle.memory["weights"] == sum(each["weights"] for each in separate)
    assert bundle.memory["arena"] == max(each["arena"] for each in separate)
    return folder


def test_the_example_checks_each_model(folder: Path, tmp_path: Path) -> None:
    done = checked_on_the_host(folder, tmp_path)
    assert done.stdout == (
        "first\nconv_2d_1: 288 of 288 bytes as expected\nsecond\nconv_2d_1: 576 of 576 bytes as expected\npassed\n"
    )


@pytest.mark.parametrize("sanitizers", [SANITIZERS, ("-fsanitize=thread",)], ids=["addresses", "threads"])
def test_arenas_of_the_application(folder: Path, tmp_path: Path, sanitizers: tuple[str, ...]) -> None:
    options = (*sanitizers, "-pthread", "-D_POSIX_C_SOURCE=200809L")
    program = host_program(folder, tmp_path, ARENA, folder / "example" / "golden.c", sanitizers=options)
    assert subprocess.run([program], check=False).returncode == 0


def test_models_of_one_name_are_refused(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        export_bundle([files[0], files[0]], tmp_path / "bundle")
    assert str(caught.value) == "model: two models have the name 'first' in C. Rename one of the files."


def test_golden_data_are_for_one_model(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        export_bundle(files, tmp_path / "bundle", golden="data.npy")
    assert str(caught.value) == "golden: there are 2 models. Export one model with golden data."


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("first", "first"),
        ("MobileNet V2 (0.35)", "mobilenet_v2_0_35"),
        ("2d", "model_2d"),
        ("double", "model_double"),
        ("neutron_x", "model_neutron_x"),
        ("…", "model"),
    ],
)
def test_names_for_c(files: list[Path], tmp_path: Path, name: str, prefix: str) -> None:
    copy = tmp_path / f"{name}.tflite"
    copy.write_bytes(files[0].read_bytes())
    bundle = export_bundle(copy, tmp_path / "bundle")
    assert f"model/{prefix}_model.c" in bundle.files
