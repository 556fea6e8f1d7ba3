# SPDX-License-Identifier: BSD-3-Clause
"""Find facts of a chip that contradict one another, so that no program could be compiled for it."""

from __future__ import annotations

from collections.abc import Iterator

from openneutron.targets.target import ACTIVATIONS, BACKGROUND, CONSTANTS, INT8, NPU, SYNCHRONOUS, Target

ARENA_ALIGNMENT = 16
"""The alignment of the buffers of a program, in bytes (``isa.rows.ALIGNMENT``); chips that need another can't be compiled for."""


def contradictions(target: Target) -> Iterator[tuple[str, str]]:
    """Yield each contradiction: the place of its entry in the file, and a message."""
    yield from _in_memories(target)
    for index, engine in enumerate(target.copy_engines):
        # A Neutron-S without a copy engine between two memories is one that this project does not compile for (Target.obstacle).
        if engine.source == engine.destination and not target.moves_tiles:
            yield (
                f"copy_engine.{index}.source",
                f"it is '{engine.source}', as the destination is; a copy engine copies between two memories.",
            )
        if target.moves_tiles and engine.mode.value != (BACKGROUND,):
            yield (
                f"copy_engine.{index}.mode",
                f"its value is {SYNCHRONOUS}; the data mover of a {target.family} works beside the kernels. Write '{BACKGROUND}'.",
            )
    if INT8 not in target.npu.data_types.value:
        yield "npu.data_types", f"{INT8} is missing; the compiler takes it for granted. Add '{INT8}'."


def _in_memories(target: Target) -> Iterator[tuple[str, str]]:
    for index, memory in enumerate(target.memories):
        if ACTIVATIONS not in memory.holds.value:
            continue
        for name, words in (("readers", memory.readers), ("writers", memory.writers)):
            if NPU not in words.value:
                yield (
                    f"memory.{index}.{name}",
                    f"{NPU} is missing; the NPU reads and writes the memory of {ACTIVATIONS}. Add '{NPU}'.",
                )
        if ARENA_ALIGNMENT % memory.alignment.value != 0:
            yield (
                f"memory.{index}.alignment",
                f"its value is {memory.alignment.value:g}; buffers of {ACTIVATIONS} are at multiples of {ARENA_ALIGNMENT} bytes.",
            )
    if not any(CONSTANTS in memory.holds.value for memory in target.memories):
        yield "memory", f"no memory holds {CONSTANTS}; at least one does."
