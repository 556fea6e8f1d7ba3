# SPDX-License-Identifier: BSD-3-Clause
"""The instructions that a CPU executes for the kernels, by instruction set.

``instructions.json`` is made by ``python -m bench fit_cpu``, which counts the instructions of many calls in QEMU and fits five constants
for each kernel. A kernel of which no call was counted has the constants of its cost class, or else those of all calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from openneutron.compiler.select.calls import KernelCall
from openneutron.isa.kernels.row import CostClass

FILE = Path(__file__).parent / "instructions.json"


class Instructions(NamedTuple):
    """Thousandths of the instructions of a kernel, beside those of the call itself.

    ``line``: for each output row of each batch. ``pixel``: for each output pixel, with all its channels. ``output``: for each element of
    the output. ``step``: for each step of the kernel, such as a multiplication. ``gathered``: for each input that an output pixel takes,
    which all its channels share. A recurrent kernel with jobs has the constants of the one without, and fewer instructions for each
    product of an input, which ``gathered`` counts: the difference of two counts of the same layer.
    """

    line: int
    pixel: int
    output: int
    step: int
    gathered: int


@cache
def table(instruction_set: str) -> Mapping[str, Instructions]:
    """Return the instructions by the name of a kernel or of a cost class."""
    return {
        name: Instructions(*(round(1000 * value) for value in each))
        for name, each in json.loads(FILE.read_text())[instruction_set].items()
    }


def name_of(call: KernelCall) -> str:
    """Return the name of a call's kernel in the table. A call with one output pixel, such as a fully connected layer, has one of its own:
    kernels have other inner loops for it."""
    batches, rows, cols, _ = call.views["output"].extents
    return f"{call.kernel}:1" if batches * rows * cols == 1 else call.kernel


def instructions_of(call: KernelCall, instruction_set: str) -> Instructions:
    """Return the instructions of a call's kernel."""
    known = table(instruction_set)
    return (
        known.get(name_of(call))
        or known.get(call.kernel)
        or known.get(call.traits.cost.kind.name)
        or known[CostClass.UNKNOWN.name]
    )
