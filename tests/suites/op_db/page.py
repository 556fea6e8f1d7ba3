# SPDX-License-Identifier: BSD-3-Clause
"""docs/op-db.md: the outcomes of PyTorch's operator samples, in figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.suites.op_db.measure import COARSE, CPU, FAILED, NOT_RUN, NOTHING, PART, REFUSED, WHOLE, WRONG, Outcome

PAGE = Path(__file__).parents[3] / "docs" / "op-db.md"

HEAD = """# PyTorch's operator samples

PyTorch tests its operators with samples of each (`torch.testing._internal.common_methods_invocations.op_db`). Here those of float32
tensors are quantized with their own values as calibration, compiled, run on the simulator and compared with float: {most}. An
operator counts as delegated whole where every sample of it is.

A result is right where its signal to quantization noise ratio is at least 18 dB, or at most 15 dB below that of the float function
between an int8 input and an int8 output. A result below that counts as coarse where the quantized module in PyTorch's own arithmetic
has the same one: an intermediate result, such as attention scores between -60 and 60, has too few int8 values. A refusal is a message that names what cannot be compiled, such as a shape that depends
on the data.

Made by `python -m tests.suites.op_db --samples {samples} --write`.

"""

KINDS = {
    WHOLE: "delegated whole",
    PART: "delegated in part",
    CPU: "on the CPU",
    NOTHING: "a view, or no computation at all",
    NOT_RUN: "compiled, but ExecuTorch's runtime has no kernel for what stays on the CPU",
    REFUSED: "refused with a message",
    COARSE: "as PyTorch's int8 module, whose intermediate scales are too coarse",
    WRONG: "further from float than quantization explains",
    FAILED: "failed with an exception",
}


def page(found: Mapping[str, Sequence[Outcome]], samples: int) -> str:
    """Return the page's text."""
    most = f"at most {samples} of each operator" if samples else "all of each operator"
    with_samples = {name: items for name, items in found.items() if items}
    kinds = Counter(_kind(items) for items in with_samples.values())
    of_samples = Counter(item.kind for items in with_samples.values() for item in items)
    lines = [f"{len(found)} operators take float32; {len(with_samples)} of them have a sample with a tensor.", ""]
    lines += ["| outcome | operators | samples |", "| --- | --- | --- |"]
    lines += [f"| {text} | {kinds[kind]} | {of_samples[kind]} |" for kind, text in KINDS.items()]
    lines.append(f"| all | {sum(kinds.values())} | {sum(of_samples.values())} |")
    lines += ["", "## Reasons", "", "Why an operator of a sample stays on the CPU, the most frequent first.", ""]
    lines += ["| operators | reason |", "| --- | --- |"]
    lines += [f"| {count} | {reason} |" for reason, count in _reasons(with_samples)]
    lines += ["", "## Operators", "", "| operator | samples |", "| --- | --- |"]
    lines += [f"| `{name}` | {_counted(items)} |" for name, items in sorted(with_samples.items())]
    return HEAD.format(most=most, samples=samples) + "\n".join(lines) + "\n"


def _kind(items: Sequence[Outcome]) -> str:
    """Return the outcome of an operator: that of its samples where they agree, the worst where one is bad, else
    partial."""
    kinds = {item.kind for item in items}
    if WHOLE in kinds:
        kinds -= {NOTHING}
    for kind in (FAILED, WRONG, COARSE):
        if kind in kinds:
            return kind
    return kinds.pop() if len(kinds) == 1 else PART


def _counted(items: Sequence[Outcome]) -> str:
    counts = Counter(item.kind for item in items)
    return ", ".join(f"{counts[kind]} {text}" for kind, text in KINDS.items() if counts[kind])


def _reasons(found: Mapping[str, Sequence[Outcome]]) -> Iterator[tuple[str, int]]:
    """Return reasons without names and numbers, with the number of operators that have them."""
    counted = Counter[str]()
    for items in found.values():
        said = [reason for item in items if item.kind in (PART, CPU) for reason in item.reasons]
        # The last one is the runtime's message.
        said += [reason for item in items if item.kind == NOT_RUN for reason in item.reasons[:-1]]
        counted.update({_general(reason) for reason in said})
    return ((reason, count) for reason, count in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


def _general(reason: str) -> str:
    """Return a reason without the operator in front of it, and without the parts that differ between calls."""
    text = re.sub(r"^[\w.:]+: ", "", reason)
    text = re.sub(r"'[^']*'", "'…'", text)
    text = re.sub(r"\[[^\]]*\]|\([^)]*\)|-?\d+(\.\d+)?(e-?\d+)?", "…", text)
    return text.replace("|", "\\|")
