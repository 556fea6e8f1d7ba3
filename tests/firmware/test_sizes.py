# SPDX-License-Identifier: BSD-3-Clause
"""The library's flash in a build for size, and the figures of docs/firmware.md."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from openneutron import litert
from openneutron.isa.kernel_selection import KernelSelection
from scripts import firmware_page
from scripts.firmware_build import COMMANDS, TOOLS, Build, Library, link, version
from scripts.firmware_page import Measured, autoencoder, flash, kernels_text, measure, network_selections, selection_of
from tests.support.tools import required

KIB = 1024


@pytest.fixture(scope="module")
def measured(libraries: Mapping[Build, Library]) -> Measured:
    """Return gcc's build for size."""
    return measure(libraries[Build("gcc", "-Os")], network_selections())


def test_all_kernels_fit_into_97_kib(measured: Measured) -> None:
    assert 10 * KIB < kernels_text(measured) <= 88 * KIB
    assert flash(measured.whole) <= 97 * KIB, "with the driver, its texts and the C library"


_CONVOLUTIONS = ("conv_2d_s8", "conv_2d_1x1_s8", "softmax_s8")
_SEPARABLE = (*_CONVOLUTIONS, "depthwise_conv_2d_s8:3x3")
KERNELS = {
    "KWS and VWW": (*_SEPARABLE, "average_pool_2d_s8"),
    "ResNet-8": (*_CONVOLUTIONS, "add_s8", "average_pool_2d_s8"),
    "MobileNetV2": (*_SEPARABLE, "add_s8", "mean_s8"),
}
"""The kernels of the shared networks that are not on the page."""

LIMITS = {
    "gcc -Os": {
        "CifarNet": 10652,
        "FC autoencoder (MLPerf Tiny anomaly detection)": 6068,
        "MobileNetV1": 12730,
        "KWS and VWW": 13156,
        "ResNet-8": 12682,
        "MobileNetV2": 14352,
    },
    "gcc -O2": {
        "CifarNet": 12478,
        "FC autoencoder (MLPerf Tiny anomaly detection)": 6870,
        "MobileNetV1": 14934,
        "KWS and VWW": 15486,
        "ResNet-8": 15262,
        "MobileNetV2": 17178,
    },
    "clang -Os": {
        "CifarNet": 12582,
        "FC autoencoder (MLPerf Tiny anomaly detection)": 6860,
        "MobileNetV1": 15038,
        "KWS and VWW": 15624,
        "ResNet-8": 15358,
        "MobileNetV2": 17312,
    },
}
"""The most bytes of driver, kernels and C library as the page's compilers link them."""

OTHER_COMPILER = 1.2
"""The most that another compiler makes of the bytes of the page's compiler."""


@pytest.fixture(scope="module")
def selections() -> dict[str, str]:
    """Return the text of each network's kernel selection."""
    texts = {name: KernelSelection("OpenNeutron 1", kernels).text() for name, kernels in KERNELS.items()}
    return network_selections() | texts


@pytest.mark.parametrize("build", LIMITS)
def test_networks_with_their_kernels(
    build: str, libraries: Mapping[Build, Library], selections: dict[str, str]
) -> None:
    compiler, level = build.split()
    share = 1 if version(compiler) in firmware_page.made_with(firmware_page.PAGE.read_text()) else OTHER_COMPILER
    library = libraries[Build(compiler, level)]
    found = {name: flash(link(library, name.replace(" ", "_"), text)) for name, text in selections.items()}
    limits = LIMITS[build]
    assert found.keys() == limits.keys()
    assert {name: size for name, size in found.items() if not 4 * KIB < size <= share * limits[name]} == {}


@pytest.mark.parametrize(
    ("file", "name"), [("mlperf_tiny_kws_int8", "KWS and VWW"), ("mlperf_tiny_resnet8_int8", "ResNet-8")]
)
def test_the_kernels_of_shared_networks(shared_models: Path, file: str, name: str) -> None:
    model = litert.read(shared_models / f"{file}.tflite")
    assert set(selection_of(model.graph).kernels) == set(KERNELS[name])


def test_a_network_of_int8_links_nothing_of_int16(measured: Measured) -> None:
    members = {member for _, member, _ in measured.networks["CifarNet"].sections}
    assert "check.o" in members
    assert [member for member in members if "16" in member] == []


def test_the_autoencoder_is_mlperf_tinys(shared_models: Path) -> None:
    """The trained model calls the kernels that the page's network of its shape calls."""
    model = litert.read(shared_models / "mlperf_tiny_ad01_int8.tflite")
    assert selection_of(model.graph).kernels == selection_of(autoencoder()).kernels


def test_the_page_stays_where_compilers_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = firmware_page.PAGE.read_text()
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", said.append)
    assert firmware_page.text() == page
    assert said == [
        "docs/firmware.md stays as it is: arm-none-eabi-gcc, clang, arm-none-eabi-nm, arm-none-eabi-objdump: not installed. "
        "`python -m scripts.firmware_page` makes it with those that are here.\n"
    ]


def test_the_page_stays_where_compilers_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TOOLS:
        required(name)
    here = " and ".join(version(compiler) for compiler in COMMANDS)
    page = firmware_page.PAGE.read_text()
    older = page.replace(firmware_page.made_with(page), "arm-none-eabi-gcc 9.9.9 and clang 9.9.9")
    assert firmware_page.obstacle(older) == (
        f"it was made with arm-none-eabi-gcc 9.9.9 and clang 9.9.9; here are {here}, which make other sizes"
    )
    assert firmware_page.obstacle("") is None
