# SPDX-License-Identifier: BSD-3-Clause
"""Refusals reach the user through ExecuTorch's NXP backend, which converts in a child process; the backend finds the
kernel selections it looks for."""

from __future__ import annotations

import multiprocessing
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openneutron import litert
from openneutron.device.converter.kernel_selections import read_selection
from openneutron.errors import InvalidModelError
from openneutron.features.compat import eiq_neutron_sdk as sdk
from openneutron.features.compat.eiq_neutron_sdk.neutron_converter import RefusedModelError
from openneutron.ir import DType, Graph, Node, Tensor, per_tensor
from tests.cortex_m33.firmware import required
from tests.support.litert_files import mixed_file
from tests.support.small_graphs import sum_with


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """ExecuTorch's class, unmodified, with this compiler behind it."""
    sdk.install()
    from executorch.backends.nxp.backend.neutron_converter_manager import NeutronConverterManager

    monkeypatch.setattr(multiprocessing, "Process", multiprocessing.get_context("fork").Process)
    yield NeutronConverterManager
    sdk.uninstall()


def relu(kind: str = "relu") -> bytes:
    quant = per_tensor(0.1, 3)
    tensors = [Tensor(name, (1, 4, 4, 8), DType.INT8, quant) for name in "xy"]
    return litert.write(Graph("g", {t.name: t for t in tensors}, (Node(kind, ("x",), ("y",)),), ("x",), ("y",)))


def test_operators_that_are_left_are_named_with_their_reasons(manager: Any) -> None:
    with pytest.raises(RuntimeError, match="Model converted with neutron-converter has") as caught:
        manager().convert(mixed_file(), "imxrt700", "tag0")
    assert isinstance(caught.value, RefusedModelError)
    said, count = caught.value.args
    assert str(caught.value) == said
    assert said.startswith(f"Model converted with neutron-converter has `{count}` operators instead of `1`. ")
    assert "LOGISTIC 'y' stays on the CPU: " in said
    with pytest.raises(RefusedModelError) as caught:
        manager().convert(relu("tanh"), "imxrt700", "tag0")
    assert str(caught.value) == (
        "Model converted with neutron-converter does not contain a NeutronGraph node. TANH 'y' stays on the CPU: its output has "
        "scale=0.1 zp=3; LiteRT demands scale=0.0078125 zp=0."
    )


def test_an_error_of_the_compiler_is_raised_where_the_user_is(manager: Any) -> None:
    with pytest.raises(InvalidModelError) as caught:
        manager().convert(b"no model", "imxrt700", "tag0")
    assert str(caught.value).startswith("'model' is no LiteRT model: ")
    with pytest.raises(ValueError, match="is not a valid target"):
        manager().convert(relu(), "imx9", "tag0")


def test_in_this_process_errors_are_raised_and_mixed_files_are_given() -> None:
    context = sdk.neutron_converter.CompilationContext()
    context.targetOpts = sdk.neutron_converter.getNeutronTarget("imxrt700")
    with pytest.raises(InvalidModelError):
        sdk.neutron_converter.convertModel(b"no model", context)
    assert isinstance(sdk.neutron_converter.convertModel(mixed_file(), context), bytes)


def test_kernel_selections_have_what_executorch_looks_for(
    manager: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for tag, kind in (("tag0", "relu"), ("tag1", "abs")):
        manager(dump_kernel_selection_code=True).convert(relu(kind), "imxrt700", tag)
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert parts == ["_kernel_selection_tag0.c", "_kernel_selection_tag1.c"]
    sdk.merge_kernel_selection_files(parts, "net_kernel_selection.c")
    for name in (*parts, "net_kernel_selection.c"):
        text = (tmp_path / name).read_text()
        assert "typedef enum NeutronKernelKind" in text and "int32_t (*neutronKernels[" in text
    merged = read_selection(Path("net_kernel_selection.c"))
    assert set(merged.kernels) == {kernel for name in parts for kernel in read_selection(Path(name)).kernels}
    required("cc")
    every = replace(merged, kernels=(*merged.kernels, "compare_s8:less"))
    (tmp_path / "net_kernel_selection.c").write_text(every.text())
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-c", "net_kernel_selection.c"]
    subprocess.run(["cc", *flags, f"-I{root / 'runtime/include'}", f"-I{root / 'runtime/kernels'}"], check=True)


def test_of_sums_with_zeros_nothing_is_left(manager: Any) -> None:
    converted = manager().convert(litert.write(sum_with("sub", ("x", "c"), 0.01, 3, 3)), "imxrt700", "tag0")
    graph = litert.read(converted).graph
    assert (graph.nodes, graph.inputs, graph.outputs) == ((), ("x",), ("x",))
