# SPDX-License-Identifier: BSD-3-Clause
"""What NXP publishes of the releases of its SDK, and who asks it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import targets
from openneutron.device.converter import eiq, releases
from openneutron.device.converter.releases import FACTS, RELATIONS, Limit
from openneutron.errors import InvalidOptionError
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.litert import write
from openneutron.ops import BY_LITERT
from openneutron.options import CompileOptions
from scripts.published_networks import cifarnet
from tests.support import fake_sdk


def tensor(name: str, *shape: int, zero_point: int = 0, constant: bool = False) -> Tensor:
    data = np.zeros(shape, np.int8) if constant else None
    return Tensor(name, shape, DType.INT8, QuantParams((0.05,), (zero_point,), None), data)


def axes(name: str, *values: int) -> Tensor:
    return Tensor(name, (len(values),), DType.INT32, None, np.array(values, np.int32))


def broken(release: str, op: str, result: Tensor, *operands: Tensor, **attrs: int) -> str | None:
    """The limit of the release that a node of this operator breaks."""
    node = Node(op, tuple(item.name for item in operands), (result.name,), attrs=attrs)
    inputs = tuple(item.name for item in operands if item.data is None)
    graph = Graph("g", {item.name: item for item in (*operands, result)}, (node,), inputs, (result.name,))
    return releases.get(release).broken_limit(graph, node)


def test_the_files() -> None:
    names = releases.names()
    assert names == (
        "25.03",
        "25.06",
        "25.09",
        "25.12",
        "2.2.2",
        "3.0.0",
        "3.0.1",
        "3.1.0",
        "3.1.1",
        "3.1.2",
        "3.1.3",
        "3.2.0",
    )
    facts = set()
    for name in names:
        release = releases.get(name)
        assert release.name == name and set(release.targets) <= set(targets.NPUS)
        assert re.search(r"^https://github\.com/pytorch/executorch/tree/[0-9a-f]{40}/", release.source)
        assert set(release.operators) <= set(BY_LITERT)
        for limit in (limit for limits in release.operators.values() for limit in limits):
            found = re.fullmatch(rf"(.+) ({'|'.join(RELATIONS)}) [\d, ]+", limit.text)
            assert found is not None, limit
            facts.add(found[1])
    assert facts == set(FACTS), "each fact is in a limit"


def test_a_release_by_its_first_numbers() -> None:
    assert [releases.get(name).name for name in ("3", "3.1", "3.1.1", "25")] == ["3.2.0", "3.1.3", "3.1.1", "25.12"]
    assert (releases.of_sdk("3.0.0").name, releases.of_sdk("9.9").name, releases.of_sdk("").name) == (
        "3.0.0",
        "3.2.0",
        "3.2.0",
    )
    with pytest.raises(InvalidOptionError) as caught:
        releases.get("3.1.4")
    assert str(caught.value) == (
        "release: nothing is published of '3.1.4'; there are 25.03, 25.06, 25.09, 25.12, 2.2.2, 3.0.0, 3.0.1, 3.1.0, 3.1.1, 3.1.2, "
        "3.1.3, 3.2.0. Did you mean '3.1.3'?"
    )


def test_limits_of_nodes() -> None:
    image, weights = tensor("x", 1, 8, 8, 12), tensor("w", 8, 3, 3, 12, constant=True)
    out, half = tensor("y", 1, 8, 8, 8), tensor("y", 1, 4, 4, 12)
    assert broken("3.2.0", "conv_2d", out, image, weights, stride_h=1, stride_w=1) is None
    assert broken("3.2.0", "conv_2d", out, image, replace(weights, data=None)) == "constant weights exactly 1; it is 0"
    assert broken("3.2.0", "conv_2d", out, image, weights, stride_h=5000) == "stride at most 4096; it is 5000"
    wide = tensor("w", 8, 80, 80, 12, constant=True)
    assert broken("3.1.2", "conv_2d", out, image, wide) == "kernel area times channels at most 65535; it is 76800"
    assert broken("3.1.3", "conv_2d", out, image, wide) == (
        "kernel area times channels, rounded up to 8 at most 65535; it is 102400"
    )
    assert broken("3.1.1", "max_pool_2d", half, image, stride_h=2, stride_w=2) == "channels multiple of 8; it is 12"
    assert broken("3.1.2", "max_pool_2d", half, image, stride_h=2, stride_w=2) is None
    assert (
        broken("3.1.0", "mean", tensor("y", 1, 8, 12), image, axes("a", 1), keep_dims=0)
        == "keep_dims exactly 1; it is 0"
    )
    large, small = tensor("y", 1, 24, 16, 8), tensor("x", 1, 8, 8, 8)
    assert broken("3.1.1", "resize_bilinear", large, small) == "scale one of 2, 4; it is 3"
    assert broken("3.2.0", "resize_bilinear", tensor("y", 1, 15, 15, 8), small, align_corners=1) is None
    assert broken("3.1.1", "add", out, tensor("x", 1, 8, 8, 8), tensor("b", 1, 1, 1, 8)) == (
        "inputs of the output's shape at least 2; it is 1"
    )
    assert broken("3.2.0", "add", out, tensor("x", 1, 8, 8, 8), tensor("b", 1, 1, 1, 8)) is None
    assert broken(
        "3.2.0", "batch_matmul", tensor("y", 1, 4, 4), tensor("x", 1, 4, 8, zero_point=3), tensor("b", 1, 8, 4)
    ) == ("zero points of the inputs exactly 0; it is 3")
    assert broken(
        "3.1.0", "concatenation", tensor("y", 1, 4, 6), tensor("x", 1, 4, 2), tensor("b", 1, 4, 4), axis=2
    ) == ("concatenated channels, unless equal shapes are joined along the last axis multiple of 8; it is 2")
    assert (
        broken("3.1.0", "concatenation", tensor("y", 1, 4, 6), tensor("x", 1, 4, 3), tensor("b", 1, 4, 3), axis=2)
        is None
    )
    wrong = replace(image, dtype=DType.INT16)
    assert broken("3.2.0", "abs", tensor("y", 1, 8, 8, 12), wrong) == "types int8, uint8; 'x' is int16"
    assert broken("3.1.2", "hard_swish", half, image) is None, "what is not listed has no published limit"


def test_a_published_limit_decides_before_the_converter_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sdk.write_facts(tmp_path, "3.1.2")
    fake_sdk.write(tmp_path, fake_sdk.OURS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(eiq, "_run", fake_sdk.forked)
    path = tmp_path / "net.tflite"
    path.write_bytes(write(cifarnet()))
    made = openneutron.compile(path, options=CompileOptions(converter="eiq", converter_release="3.1"))
    (left,) = made.compiled.partitioning.on_cpu
    assert (left.operator, left.reason) == ("SOFTMAX", "NXP's limit of release 3.1.2: channels multiple of 8; it is 10")
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(path, options=CompileOptions(converter="eiq", converter_release="3.2"))
    assert str(caught.value) == (
        "converter_release: eiq_neutron_sdk is release 3.1.2 in this Python, and not 3.2, whose microcode may be of another version. "
        "Install that release, or leave converter_release out."
    )


def test_a_line_that_is_no_limit() -> None:
    graph = cifarnet()
    with pytest.raises(AssertionError, match="'kernel below 3' is no limit"):
        Limit("kernel below 3").broken_by(graph, graph.nodes[0])
