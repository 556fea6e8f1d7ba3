# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a decoder on the chip of its program: i.MX 95 by ``times``, a core whose instructions are counted by its kernel calls.

A call on a core takes the longer of its instructions and the reading of its weights. The range begins at this time, less the target's
error. It ends at the sum of instructions and reading, plus the error: a core without a prefetch waits for each line of flash.
"""

from __future__ import annotations

from collections.abc import Iterator

from openneutron.compiler.cost.language import ATTENTION, FOUR, LanguageCall, table
from openneutron.isa.microcode import Microcode
from openneutron.language import times
from openneutron.language.times import Part, Phase
from openneutron.targets import Target, with_checksum


def calls_of(microcode: Microcode) -> Iterator[tuple[str, LanguageCall]]:
    """Yield each call of a decoder's program with its name."""
    names = microcode.names or ("",) * len(microcode.operators)
    for name, call in zip(names, microcode.operators, strict=True):
        params = dict(zip(call.row.names, call.values, strict=True))
        yield name, LanguageCall(call.row.name, params, microcode.buffers[call["output"]]["channels"])


def modelled(microcode: Microcode, tokens: int, position: int, rows: int) -> tuple[str, Phase] | None:
    """Return the chip of a program in words, and the modelled time of ``tokens`` tokens from ``position`` on in runs of at most ``rows``.

    Return None for a program of no decoder, for a chip or an instruction set whose time is not modelled, for a decoder behind an encoder on a
    core, and for a target that does not come with this package.
    """
    target = with_checksum(microcode.target)
    if target is None or not any(call.row.name == ATTENTION for call in microcode.operators):
        return None
    if target.name.startswith(("imx95", "cortex-a55")):
        return "i.MX 95 with six cores", times.phase(times.work_of(microcode), tokens, position, rows)
    if target.cpu is None:
        return None
    known = table(target.cpu.instruction_set.value[0])
    calls = [call for _, call in calls_of(microcode)]
    if any(call.form(1) not in known or call.form(FOUR) not in known or call.params.get("cross") for call in calls):
        return None
    title = target.title.removeprefix("NXP ")
    return f"{title} at {target.clock.value:g} MHz", on_core(microcode, target, tokens, position, rows)


def on_core(microcode: Microcode, target: Target, tokens: int, position: int, rows: int) -> Phase:
    """Return the modelled time on a core, on whose instruction set the forms of all calls are counted.

    The bound is the longer of the reading of all weights and of the products at the most that the core computes in a cycle.
    """
    assert target.cpu is not None
    cpu, hertz = target.cpu, 1e6 * target.clock.value
    read = target.constants_home.bandwidth.value * hertz
    runs = [(min(rows, tokens - first), position + first) for first in range(0, tokens, rows)]
    found: dict[str, Part] = {}
    least = most = 0.0
    for name, call in calls_of(microcode):
        seconds = products = size = 0.0
        for count, first in runs:
            instructions = call.instructions(count, first, cpu.instruction_set.value[0])
            assert instructions is not None
            computing = (instructions + cpu.call_instructions.value) * cpu.instruction_cycles.value / hertz
            reading = call.weight_bytes(count) / read
            seconds += max(computing, reading)
            most += computing + reading
            size += call.weight_bytes(count)
            products += call.work(count, first).products
        least += seconds
        kind = name.rpartition(".")[2]
        so_far = found.get(kind, Part(kind, 0.0, 0.0, 0.0, False))
        found[kind] = Part(kind, so_far.seconds + seconds, so_far.size_bytes + size, so_far.products + products, False)
    parts, error = tuple(found.values()), 1 + cpu.error.value / 100
    bound = max(
        sum(part.size_bytes for part in parts) / read, sum(part.products for part in parts) / cpu.macs.value / hertz
    )
    return Phase(tokens, parts, least, least / error, most * error, bound)
