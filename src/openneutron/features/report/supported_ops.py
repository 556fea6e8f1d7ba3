# SPDX-License-Identifier: BSD-3-Clause
"""The page docs/supported-ops.md, from the operator table and PyTorch's lowering rules.

Printed by ``python -m openneutron.features.report.supported_ops``. It needs torch, for the second half.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from openneutron import ops
from openneutron.features.report.lowered_by import lowered_by
from openneutron.ir import DType
from openneutron.ops import Op, Quantization, Role
from openneutron.ops.limits import WIDE_FIXED

PAGE = """<!-- Generated: python -m openneutron.features.report.supported_ops > docs/supported-ops.md -->
# Supported operators

This page is generated from the tables of the compiler. `openneutron explain MODEL` applies these tables to a model: it names every
operator that stays on the CPU, with the limit that the operator exceeds.

Every operator that LiteRT has computes the same bits as LiteRT's int8 or int16 [reference
kernel](explanation/arithmetic.md#literts-reference-kernels-are-the-specification). Operators in lower case are this project's own: PyTorch operators are
lowered to them, and no `.tflite` has them.

## LiteRT operators

A `.tflite` may have these operators, and PyTorch operators are lowered to them: the last column has those whose lowering can emit the
operator, alone or among others. "Quantization" relates the output's scale and zero
point to the input's. Limits of all operators: activations are int8, quantized per tensor, with static shapes; any batch size is
possible. Where the limits begin with "int8 or int16", the activations of an operator may instead all be int16 with zero point 0
(LiteRT's 16x8 quantization).

{litert}
## uint8 models

uint8 models of old converters are computed in int8, with every stored value and zero point 128 lower. The results equal those of
LiteRT's uint8 reference kernels byte for byte; inputs and outputs stay uint8. Weights may have a zero point: where weights without the
zero point do not fit int8, the layer multiplies a second time, by a copy of its input. LiteRT has no matching uint8 kernel for these
operators, which stay on the CPU in uint8:

{uint8}

## LiteRT operators that stay on the CPU

The table gives the reasons of these operators. For an operator of LiteRT's schema that is not on this page, this project has no kernel,
and often LiteRT 2.3.0 has no int8 kernel.

{on_cpu}
## PyTorch operators

These operators are delegated between quantize and dequantize nodes, which `NeutronQuantizer` inserts. `openneutron explain` gives
the reason where one of them stays on the CPU.

{pytorch}
## Pointwise functions

A pointwise function of one quantized tensor and numbers becomes one table with PyTorch's own results, also where several operators
compute the function. This applies to every operator that PyTorch marks as pointwise. These have one tensor as operand:

{functions}

## Composite operators

`NeutronQuantizer` decomposes these operators, so that each part is quantized; the parts are delegated as above. Operators that PyTorch
itself defines by others, such as `aten.hstack.default`, have PyTorch's decompositions.

{composites}"""

COMMON_LIMITS = frozenset(
    ("inputs and outputs int8, quantized per tensor, static shapes", "inputs and outputs of one type")
)


def text() -> str:
    """Return the page."""
    return PAGE.format(
        litert=litert_table(),
        uint8=_code([row.litert for row in _only_int8()]),
        on_cpu=on_cpu_table(),
        pytorch=pytorch_table(),
        functions=functions_table(),
        composites=composites_table(),
    )


def _only_int8() -> list[Op]:
    """Return the rows whose uint8 kernel in LiteRT is absent or computes another function."""
    takes_int8 = (
        row for row in ops.OPS if row.litert and not row.unsigned and row.operands[0].role is not Role.CONDITION
    )
    return sorted(takes_int8, key=lambda row: row.litert)


def litert_table() -> str:
    """Return a row for each operator of the operator table."""
    pytorch = lowered_by()
    rows = [
        (
            f"`{row.litert or row.name}`",
            row.doc,
            _quantization(row),
            "; ".join(_limits(row)) or "none",
            _code(row.kernels),
            _code(pytorch.get(row.name, ())) or "-",
        )
        for row in sorted(ops.OPS, key=lambda row: row.litert or row.name)
    ]
    return _table(
        ("LiteRT operator", "what it computes", "quantization", "limits", "kernels", "PyTorch operators"), rows
    )


def on_cpu_table() -> str:
    """Return a row for each reason for a CPU fallback of LiteRT operators, as ``openneutron explain`` prints it."""
    operators: dict[str, list[str]] = {}
    for name, reason in ops.ON_CPU.items():
        operators.setdefault(reason, []).append(name)
    return _table(("operators", "why"), sorted((_code(sorted(names)), why) for why, names in operators.items()))


def _quantization(row: Op) -> str:
    if row.quantization is not Quantization.FIXED or row.fixed_output is None:
        return row.quantization.value
    scale, zero_point = row.fixed_output
    wide = f" (int16: 1/{round(1 / WIDE_FIXED[0])}, 0)" if DType.INT16 in row.types else ""
    return f"scale 1/{round(1 / scale)}, zero point {zero_point}{wide}"


def _limits(row: Op) -> list[str]:
    worded = [inspect.getdoc(limit) or "" for limit in row.limits]
    # How the output is quantized has a column of its own.
    known = COMMON_LIMITS | {"inputs and output of the same scale and zero point"}
    return [words for words in worded if words not in known and not words.startswith("output scale")]


def pytorch_table() -> str:
    """Return a row for each operator with a lowering rule: its family, and the remark of its rule."""
    from openneutron.pytorch.operators.families import LOWER_RULES

    rows = []
    for name, row in LOWER_RULES.items():
        if "." in name:  # getitem and its kin are parts of other operators
            remark = (inspect.getdoc(row.rule) or "").split("\n\n")[0]
            rows.append((f"`{name}`", _first_line(sys.modules[row.rule.__module__]), " ".join(remark.split())))
    return _table(("PyTorch operator", "family", "remark"), sorted(rows))


def functions_table() -> str:
    """Return a row for each pointwise function of one tensor: the operator of LiteRT or the table that it becomes."""
    of_rules: dict[str, list[str]] = {}
    for name, targets in lowered_by().items():
        for target in targets:
            of_rules.setdefault(target.rpartition(".")[0], []).append(ops.BY_NAME[name].litert or name)
    rows = [
        (f"`{name}`", f"{_code(sorted(set(of_rules[name])))}, or a table" if name in of_rules else "a table")
        for name in functions()
    ]
    return _table(("PyTorch operator", "becomes"), rows)


def functions() -> list[str]:
    """Return the ATen operators that are functions of one value, without their overloads."""
    import torch

    from openneutron.pytorch.graph.pointwise import is_pointwise_operator

    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        stem, _, overload = rest.partition(".")
        if namespace != "aten" or stem.startswith("_"):
            continue
        operator = getattr(getattr(torch.ops.aten, stem), overload or "default")
        tensors = [str(argument.type) for argument in operator._schema.arguments if "Tensor" in str(argument.type)]
        results = [str(item.type) for item in operator._schema.returns]
        if is_pointwise_operator(operator) and tensors == results == ["Tensor"]:
            found.add(f"aten.{stem}")
    return sorted(found)


def composites_table() -> str:
    """Return a row for each operator with a decomposition: its family."""
    from openneutron.pytorch.operators.families import DECOMPOSITIONS

    rows = [(f"`{name}`", _first_line(sys.modules[function.__module__])) for name, function in DECOMPOSITIONS.items()]
    return _table(("PyTorch operator", "family"), sorted(rows))


def _first_line(module: ModuleType) -> str:
    return (inspect.getdoc(module) or module.__name__).splitlines()[0].split(". ")[0].rstrip(".")


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
