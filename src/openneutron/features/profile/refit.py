# SPDX-License-Identifier: BSD-3-Clause
"""Fit the cost model of a CPU to the cycles that a board has measured, and write them as a chip's file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.features.profile.profile import OperatorProfile, Profile

CYCLES = "cycles"
"""The unit of a device's times that a fit needs."""

LEAST_CYCLES = 0.1
"""The fewest cycles of an instruction that a chip's file may have."""

MATTERS = 0.01
"""Operators with less than this share of the measured cycles are left out of the error."""


def refitted(profile: Profile, source: str, name: str) -> str:
    """Return the text of a chip's file called ``name``: the file of the profile's target with other cycles of an instruction.

    They are those with which the modelled cycles of all calls together are the measured ones. ``source`` is the file of the
    measurement. Raises InvalidOptionError where the target has an NPU, or where the times are no cycles.
    """
    target = profile.target
    if target.cpu is None:
        raise InvalidOptionError(
            f"--refit: {target.name} has an NPU, whose cost model has several constants. It is for a CPU, such as cortex-m33."
        )
    if profile.unit != CYCLES:
        raise InvalidOptionError(
            f"--refit: the times of '{source}' are {profile.unit}. It takes the CPU's cycles, which the example of a bundle counts on a board."
        )
    path = targets.CPUS.get(target.name)
    if path is None:
        raise InvalidOptionError(
            f"--refit: '{profile.file}' was compiled for {target.name}. Compile it for one of {', '.join(targets.CPUS)}."
        )
    ratio, error = _ratio_and_error(profile.operators)
    said = f"fitted: to the cycles in {Path(source).name}"
    text = re.sub(r'^name = ".*"$', f'name = "{name}"', path.read_text(), count=1, flags=re.MULTILINE)
    cycles = float(f"{target.cpu.instruction_cycles.value * ratio:.3g}")
    if cycles < LEAST_CYCLES:
        raise InvalidOptionError(
            f"--refit: '{source}' has {ratio:.2g} times the modelled cycles, which is {cycles:g} for an instruction. No core executes "
            "as many instructions in a cycle: check that the example counts the core's cycles."
        )
    text = _with_fact(text, "instruction_cycles", f"{cycles:g}", ' unit = "cycles",', said)
    return _with_fact(
        text, "error", f"{error}", ' unit = "%",', f"{said}; the largest error of a call with 1% of them or more"
    )


def _with_fact(text: str, name: str, value: str, unit: str, source: str) -> str:
    line = f'{name} = {{ value = {value},{unit} source = "{source}" }}'
    return re.sub(rf"^{name} = .*$", lambda _: line, text, count=1, flags=re.MULTILINE)


def _ratio_and_error(operators: Sequence[OperatorProfile]) -> tuple[float, int]:
    """Return measured over modelled cycles, and the largest error that is left in percent, from 1 to 99."""
    measured = [(item.cycles, item.time) for item in operators if item.time]
    whole = sum(time for _, time in measured)
    ratio = whole / sum(cycles for cycles, _ in measured)
    errors = [abs(cycles * ratio / time - 1) for cycles, time in measured if time >= MATTERS * whole]
    return ratio, min(99, max(1, math.ceil(100 * max(errors))))
