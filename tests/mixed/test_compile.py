# SPDX-License-Identifier: BSD-3-Clause
"""Files in, files out: what is delegated, what is not, and what a file that can't be compiled says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron import litert
from openneutron.compiler import CompileOptions
from openneutron.device.mixed import CompiledFile, FileSimulator, compile_file
from openneutron.device.timings import measured
from openneutron.errors import BudgetError, InvalidModelError, InvalidOptionError
from tests.support.litert_files import BUILTIN, FileBuilder, float_file, int16_file, mixed_file, wide_file

WHOLE_MODELS = (
    "mlperf_tiny_ad01_int8",
    "mlperf_tiny_kws_int8",
    "mlperf_tiny_resnet8_int8",
    "mlperf_tiny_vww96_int8",
    "mobilenet_v2_224_random_int8",
)


def compiled(data: bytes, *not_to_delegate: str, budget: int | None = None) -> CompiledFile:
    options = CompileOptions(sram_budget=budget)
    return compile_file(litert.read(data), "model.tflite", options, not_to_delegate)


def test_mixed_file_keeps_what_the_npu_can_not_take_around_its_two_nodes() -> None:
    made = compiled(mixed_file())
    after = litert.read(made.to_bytes()).graph
    assert [node.op for node in after.nodes] == [
        "quantize", "CUSTOM NeutronGraph", "scatter_nd", "CUSTOM NeutronGraph", "DEQUANTIZE", "logistic",
    ]  # fmt: skip
    assert [str(item) for item in made.partitioning.on_cpu] == [
        "QUANTIZE 'q' stays on the CPU: it turns float32 into int8. A model with int8 inputs has none.",
        "SCATTER_ND 'r' stays on the CPU: its indices name a place twice; the sum of what is written there is not computed.",
        "DEQUANTIZE 'f' stays on the CPU: it turns int8 into float32. A model with int8 outputs has none.",
        "LOGISTIC 'y' stays on the CPU: input 'f' is float32; the NPU computes on int8. Quantize the model.",
    ]


@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_a_fully_int8_model_is_one_node_and_runs_as_before(name: str, shared_models: Path) -> None:
    path = shared_models / f"{name}.tflite"
    made = compile_file(litert.read(path), path.name)
    data = made.to_bytes()
    assert [node.op for node in litert.read(data).graph.nodes] == ["CUSTOM NeutronGraph"]
    stock, ours = FileSimulator(path), FileSimulator(data)
    assert [str(tensor) for tensor in ours.inputs + ours.outputs] == [str(t) for t in stock.inputs + stock.outputs]
    generator = np.random.default_rng(0)
    inputs = [generator.integers(-128, 128, tensor.shape, np.int8) for tensor in stock.inputs]
    for got, want in zip(ours.run(inputs), stock.run(inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_progress_is_told_for_each_partition() -> None:
    told: list[tuple[str, int, int]] = []
    with measured(lambda *step: told.append(step)):
        compile_file(litert.read(mixed_file()), "m")
    assert told == [
        ("Partitioning", 0, 1),
        ("Partitioning", 1, 1),
        ("Compiling", 0, 2),
        ("Compiling", 1, 2),
        ("Compiling", 2, 2),
    ]


def message_of(data: bytes, *not_to_delegate: str) -> str:
    with pytest.raises(InvalidModelError) as caught:
        compiled(data, *not_to_delegate)
    return str(caught.value)


WAY_OUT = "the NPU computes in int8 and int16. Quantize the model to int8, or compile the PyTorch model it was made from, which quantizes it."


def test_a_float_file_says_so() -> None:
    assert message_of(float_file()) == (
        f"'model.tflite': none of its 2 operators runs on the NPU: it computes in float32; {WAY_OUT}"
    )


def test_an_int16_file_without_scales_says_so() -> None:
    assert message_of(int16_file()) == (
        "'model.tflite': its one operator does not run on the NPU; ADD 'y': input 'x' has no quantization parameters. "
        "`openneutron explain` gives the reason for each."
    )


def test_conversions_of_an_int16_file_name_its_type() -> None:
    reasons = {str(item) for item in compiled(wide_file()).partitioning.on_cpu}
    assert reasons == {
        "QUANTIZE 'q' stays on the CPU: it turns float32 into int16. A model with int16 inputs has none.",
        "QUANTIZE 's' stays on the CPU: it turns float32 into int16. A model with int16 inputs has none.",
        "DEQUANTIZE 'pf' stays on the CPU: it turns int16 into float32. A model with int16 outputs has none.",
        "DEQUANTIZE 'y' stays on the CPU: it turns int16 into float32. A model with int16 outputs has none.",
        "SIN 'sf' stays on the CPU: there is no kernel for SIN. See docs/supported-ops.md for those there are.",
    }


def test_an_int8_file_with_nothing_for_the_npu_gives_the_first_reason() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4))
    b.tensor("y", (1, 4))
    b.operator(BUILTIN.DIV, ["x", "x"], ["y"], "DivOptions")
    assert message_of(b.finish(["x"], ["y"])) == (
        "'model.tflite': its one operator does not run on the NPU; DIV 'y': there is no kernel for DIV. "
        "`openneutron explain` gives the reason for each."
    )


def test_an_empty_file_says_so() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4))
    assert message_of(b.finish(["x"], ["x"])) == "'model.tflite': it has no operators."


def test_a_compiled_file_is_not_compiled_again() -> None:
    assert message_of(compiled(mixed_file()).to_bytes()) == (
        "'model.tflite': it is compiled already: operator 1 is a NeutronGraph. Compile the file it was made from."
    )


def test_explaining_a_float_file_is_no_error() -> None:
    made = compile_file(litert.read(float_file()), "m", must_delegate=False)
    assert made.parts == ()
    assert [item.operator for item in made.partitioning.on_cpu] == ["CONV_2D", "SOFTMAX"]


def test_a_budget_below_the_least_names_it_and_the_least_does() -> None:
    with pytest.raises(BudgetError) as caught:
        compiled(mixed_file(), budget=64)
    least = caught.value.least_bytes
    assert least < max(part.report.sram_bytes for part in compiled(mixed_file()).parts)
    assert str(caught.value) == (
        f"'model.tflite': it needs {least / 1024:.1f} KiB ({least} bytes) of SRAM for the largest of its 2 partitions, which "
        f"run one after the other; the budget is 0.1 KiB (64 bytes). 's' needs the most memory. Give it at least {-(-least // 1024)} KiB with "
        f"--sram-budget (sram_budget={-(-least // 1024) * 1024} in Python), or a smaller input."
    )
    assert compiled(mixed_file(), budget=least).budget_bytes == least
    with pytest.raises(BudgetError):
        compiled(mixed_file(), budget=least - 1)


def test_unknown_names_not_to_delegate_name_the_nearest() -> None:
    for given, hint in (
        ("MAX_POOL", "Did you mean 'MAX_POOL_2D'"),
        ("conv2d", "Did you mean 'conv_2d'"),
        ("SOFTMAX", "It has QUANTIZE, CONV_2D, MAX_POOL_2D, SCATTER_ND, ADD, RELU, DEQUANTIZE, LOGISTIC."),
        ("zzz", "It has QUANTIZE, CONV_2D, MAX_POOL_2D, SCATTER_ND, ADD, RELU, DEQUANTIZE, LOGISTIC."),
    ):
        with pytest.raises(InvalidOptionError) as caught:
            compiled(mixed_file(), given)
        start = f"operators_not_to_delegate: '{given}' is neither an operator nor an output of one in 'model.tflite'. "
        assert str(caught.value).startswith(start + hint)


def test_operators_can_be_left_to_the_cpu() -> None:
    made = compiled(mixed_file(), "MAX_POOL_2D")
    assert "MAX_POOL_2D 'p' stays on the CPU: operators_not_to_delegate names it." in map(str, made.partitioning.on_cpu)
