# SPDX-License-Identifier: BSD-3-Clause
"""docs/op-db.md: the outcomes of PyTorch's operator samples, in figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.suites.op_db.measure import (
    COARSE,
    CPU,
    EMPTY,
    FAILED,
    NOT_RUN,
    NOTHING,
    PART,
    REFUSED,
    WHOLE,
    WRONG,
    Outcome,
)

PAGE = Path(__file__).parents[3] / "docs" / "op-db.md"

HEAD = """# PyTorch's operator samples

PyTorch tests its operators with samples of each (`torch.testing._internal.common_methods_invocations.op_db`). Here those of float32
tensors are quantized with their own values as calibration, compiled, run on the simulator and compared with float: {most}, {count}
samples in all. A model is quantized and partitioned once, which is the same for both chips; its programs are compiled and run for
each.

An operator counts as delegated whole where every sample of it is, without views and samples without elements. It counts as in part
where the NPU computes something of its samples, but not all. It counts as wrong, failed, coarse or not run where one sample is.

A result is right where its signal to quantization noise ratio is at least 18 dB, or at most 15 dB below that of the float function
between an int8 input and an int8 output. A result below that counts as coarse where the quantized module in PyTorch's own arithmetic
has the same one: an intermediate result, such as attention scores between -60 and 60, has too few int8 values.

A refusal is a message that names what cannot be compiled, before anything is compiled: a shape that depends on the data, or an
operator for which neither the NPU nor ExecuTorch's runtime has a kernel.

PyTorch tests the edges of an operator with extents of 0. A result without elements is a constant, and so no computation. Where an
operator on the CPU takes a tensor without elements (a mean of it is NaN), its sample is counted apart, and its results are compared
all the same.

Made by `{command}`.

"""

KINDS = {
    WHOLE: "delegated whole",
    PART: "delegated in part",
    CPU: "on the CPU",
    NOTHING: "a view, or no computation at all",
    EMPTY: "on the CPU, with a tensor without elements",
    NOT_RUN: "compiled, but ExecuTorch's runtime has no kernel for what stays on the CPU",
    REFUSED: "refused with a message",
    COARSE: "as PyTorch's int8 module, whose intermediate scales are too coarse",
    WRONG: "further from float than quantization explains",
    FAILED: "failed with an exception",
}

Found = Mapping[str, Sequence[Outcome]]
"""The outcomes of samples by operator."""


def page(found: Mapping[str, Found], samples: int) -> str:
    """Return the page's text, from the outcomes by target."""
    most = f"at most {samples} of each operator" if samples else "all of each operator"
    columns = {target: {name: items for name, items in of.items() if items} for target, of in found.items()}
    names = sorted({name for of in columns.values() for name in of})
    operators = [Counter(kind_of(items) for items in of.values()) for of in columns.values()]
    counted = [Counter(item.kind for items in of.values() for item in items) for of in columns.values()]
    pairs = list(zip(operators, counted, strict=True))
    every = {name for of in found.values() for name in of}
    lines = [f"{len(every)} operators take float32; {len(names)} of them have a sample with a tensor.", ""]
    lines += _table(
        ["outcome", *(f"{target}: {what}" for target in columns for what in ("operators", "samples"))],
        [[text, *(str(each[kind]) for pair in pairs for each in pair)] for kind, text in KINDS.items()]
        + [["all", *(str(each.total()) for pair in pairs for each in pair)]],
    )
    lines += [
        "",
        "## Reasons",
        "",
        "Why an operator of a sample stays on the CPU, the most frequent first, by operators.",
        "",
    ]
    reasons = [_reasons(of) for of in columns.values()]
    order = sorted({reason for each in reasons for reason in each}, key=lambda reason: (-reasons[0][reason], reason))
    lines += _table([*columns, "reason"], [[*(str(each[reason]) for each in reasons), reason] for reason in order])
    lines += ["", "## Operators", ""]
    rows = [[f"`{name}`", *(_counted(of.get(name, ())) for of in columns.values())] for name in names]
    lines += _table(["operator", *columns], rows)
    command = (
        f"python -m tests.suites.op_db --samples {samples}{''.join(f' --target {each}' for each in columns)} --write"
    )
    head = HEAD.format(most=most, count=max(each.total() for each in counted), command=command)
    return head + "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def kind_of(items: Sequence[Outcome]) -> str:
    """Return the outcome of an operator: the worst one of its samples where it is bad, else what its samples have in common."""
    kinds = {item.kind for item in items}
    if kinds - {NOTHING, EMPTY}:
        kinds -= {NOTHING, EMPTY}
    for kind in (FAILED, WRONG, COARSE, NOT_RUN):
        if kind in kinds:
            return kind
    if len(kinds) > 1 and kinds & {WHOLE, PART}:
        return PART
    return next(kind for kind in KINDS if kind in kinds)


def _counted(items: Sequence[Outcome]) -> str:
    counts = Counter(item.kind for item in items)
    return ", ".join(f"{counts[kind]} {text}" for kind, text in KINDS.items() if counts[kind])


def _reasons(found: Found) -> Counter[str]:
    """Return reasons without names and numbers, with the number of operators that have them."""
    counted = Counter[str]()
    for items in found.values():
        said = [reason for item in items if item.kind in (PART, CPU) for reason in item.reasons]
        # The last one is the runtime's message.
        said += [reason for item in items if item.kind == NOT_RUN for reason in item.reasons[:-1]]
        counted.update({_general(reason) for reason in said})
    return counted


def _general(reason: str) -> str:
    """Return a reason without the operator in front of it, and without the parts that differ between calls."""
    text = re.sub(r"^[\w.:]+: ", "", reason)
    text = re.sub(r"'[^']*'", "'…'", text)
    text = re.sub(r"\[[^\]]*\]|\([^)]*\)|-?\d+(\.\d+)?(e-?\d+)?", "…", text)
    return text.replace("|", "\\|")
