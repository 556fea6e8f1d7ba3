# SPDX-License-Identifier: BSD-3-Clause
"""Operators on the host core have a time of their own beside the NPU's."""

from __future__ import annotations

from openneutron import litert, targets
from openneutron.compiler.cost.host import HostKind, HostOperator, host_cycles, kind_of
from openneutron.device.mixed import compile_file
from openneutron.features.report.summary import of_compiled_file
from openneutron.features.report.text import summary_rows
from tests.support.litert_files import mixed_file

TARGET = targets.get("imxrt700")


def test_operators_are_told_apart_by_name() -> None:
    names = ("QUANTIZE", "quantize", "DEQUANTIZE", "quantized_decomposed::dequantize_per_tensor.out")
    assert {kind_of(name) for name in names} == {HostKind.CONVERSION}
    assert {kind_of(name) for name in ("SOFTMAX", "aten::_softmax.out")} == {HostKind.SOFTMAX}
    assert kind_of("aten::log_softmax.out") is kind_of("ADD") is HostKind.OTHER


def test_cycles_grow_with_values_and_count_each_operator() -> None:
    """The published SOFTMAX over 12 values takes 17 us."""
    softmax = HostOperator(HostKind.SOFTMAX, 12)
    assert abs(TARGET.milliseconds(host_cycles([softmax], TARGET)) - 0.017) < 1e-4
    host = TARGET.host
    both = [softmax, HostOperator(HostKind.CONVERSION, 490), HostOperator(HostKind.OTHER, 10_000)]
    assert host_cycles(both, TARGET) == 2 * 2754 + 12 * 230 + 490 * host.conversion_cycles.value


def test_a_summary_splits_its_estimate() -> None:
    made = of_compiled_file(compile_file(litert.read(mixed_file()), "mixed"))
    data = made.to_dict()
    parts = [data[name] for name in ("npu_cycles", "copy_cycles", "host_cycles")]
    assert sum(parts) == data["modelled_cycles"] and parts[2] > 0
    assert made.host_operators_not_modelled == 2
    conversions = [item.values for item in made.host if item.kind is HostKind.CONVERSION]
    assert made.host_cycles == 2 * 2754 + sum(conversions) * 38 == data["host_cycles"]
    assert dict(summary_rows(made))["Time on"].endswith(", not modelled: 2 operators on the CPU")
