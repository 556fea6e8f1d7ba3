# SPDX-License-Identifier: BSD-3-Clause
"""Methods of ``.pte`` files are what ExecuTorch's own reader says they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.exir import to_edge
from executorch.exir._serialize._program import deserialize_pte_binary

from openneutron.device.pte import DelegateCall, Jump, KernelCall, TensorValue, methods
from tests.export.bundles import cifarnet


class OnTheCpu(torch.nn.Module):
    """Integers, floats, lists, strings and None among the arguments; several outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = torch.sort(x * 0.5, 1)
        return values.permute(1, 0), places + y, torch.nn.functional.gelu(x, approximate="tanh"), x.sum(0)


def on_the_cpu() -> bytes:
    example = (torch.randn(3, 4), torch.arange(12).reshape(3, 4))
    return bytes(to_edge(torch.export.export(OnTheCpu(), example, strict=True)).to_executorch().buffer)


FILES = {
    "float borders": lambda: cifarnet().buffer,
    "int8 borders": lambda: cifarnet("int8").buffer,
    "on the CPU": on_the_cpu,
}


def value(theirs: Any) -> Any:
    kind = type(theirs).__name__
    if kind == "Tensor":
        return TensorValue(
            {"CHAR": "int8", "FLOAT": "float32", "LONG": "int64"}[theirs.scalar_type.name], tuple(theirs.sizes)
        )
    field = {"Int": "int_val", "Bool": "bool_val", "Double": "double_val", "String": "string_val"}.get(kind)
    return None if field is None else getattr(theirs, field)


@pytest.mark.parametrize("make", FILES.values(), ids=FILES.keys())
def test_same_as_executorch_reads(make: Any) -> None:
    data = make()
    read = deserialize_pte_binary(data)
    plans = getattr(read, "program", read).execution_plan
    found = methods(data)
    assert [method.name for method in found] == [plan.name for plan in plans]
    for ours, theirs in zip(found, plans, strict=True):
        assert ours.values == tuple(value(item.val) for item in theirs.values)
        assert (list(ours.inputs), list(ours.outputs)) == (theirs.inputs, theirs.outputs)
        assert [delegate.backend for delegate in ours.delegates] == [delegate.id for delegate in theirs.delegates]
        names = [".".join(part for part in (item.name, item.overload) if part) for item in theirs.operators]
        steps: list[KernelCall | DelegateCall | Jump] = []
        for chain in theirs.chains:
            for instruction in chain.instructions:
                step = instruction.instr_args
                if type(step).__name__ == "KernelCall":
                    steps.append(KernelCall(names[step.op_index], tuple(step.args)))
                elif type(step).__name__ == "DelegateCall":
                    steps.append(DelegateCall(step.delegate_index, tuple(step.args)))
                else:
                    steps.append(Jump())
        assert list(ours.instructions) == steps
