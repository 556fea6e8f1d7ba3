# SPDX-License-Identifier: BSD-3-Clause
"""The memory of several models that run one after the other in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.features.report.summary import Summary
from openneutron.features.report.table import Column, Table, facts, right, size_text


@dataclass(frozen=True, slots=True)
class Share:
    """A model's part of the memory, in bytes.

    ``arena_bytes`` is the memory of each region that the model needs during a run alone: its arena, its prefetch buffer, and inputs and
    outputs outside the arena. ``state_bytes`` is the memory that it keeps between runs.
    """

    model: str
    arena_bytes: tuple[int, ...]
    state_bytes: int
    weights_bytes: int
    microcode_bytes: int

    @classmethod
    def of(cls, summary: Summary) -> Share:
        """Return the part of a compiled model."""
        return cls(
            summary.model,
            arena_bytes(summary),
            summary.state_bytes,
            summary.weights_bytes,
            summary.microcode_bytes,
        )


def arena_bytes(summary: Summary) -> tuple[int, ...]:
    """Return the bytes of each memory region that a run of a model needs, without states."""
    if len(summary.target.regions) == 1:
        return (summary.sram_bytes - summary.state_bytes,)
    count, sizes = len(summary.target.regions), []
    for report in (part.report for part in summary.partitions):
        first = (report.arena_bytes, report.prefetch_bytes)[: count - 1]
        sizes.append((*first, report.sram_bytes - report.state_bytes - sum(first)))
    return tuple(max(each) for each in zip(*sizes, strict=True)) or (0,) * count


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The memory of several models that use one arena in turn. ``regions`` has the names of the arena's memory
    regions.

    ``equal_weights_bytes`` is the size of weights that an earlier model has too: firmware has them once.
    ``chip_bytes`` is the size of the chip's SRAM. ``in_sram_bytes`` is the size of the weights that the SRAM holds
    beside a run, on a chip whose NPU can't read them elsewhere.
    """

    models: tuple[Share, ...]
    regions: tuple[str, ...]
    budget_bytes: int
    chip_bytes: int
    equal_weights_bytes: int = 0
    in_sram_bytes: int = 0

    @property
    def regions_bytes(self) -> tuple[int, ...]:
        """Return the size of the arena in each region: that of the model which needs the most there."""
        return tuple(max(sizes) for sizes in zip(*(each.arena_bytes for each in self.models), strict=True))

    @property
    def arena_bytes(self) -> int:
        """Return the size of the arena in all regions."""
        return sum(self.regions_bytes)

    @property
    def state_bytes(self) -> int:
        """Return the size of the states of all models, each of which has memory of its own."""
        return sum(each.state_bytes for each in self.models)

    @property
    def sram_bytes(self) -> int:
        """Return the SRAM of all models: the arena and the states."""
        return self.arena_bytes + self.state_bytes

    @property
    def total_sram_bytes(self) -> int:
        """Return the SRAM of all models, with the weights that are in SRAM."""
        return self.sram_bytes + self.in_sram_bytes

    @property
    def separate_bytes(self) -> int:
        """Return the SRAM of the models with an arena each."""
        return sum(sum(each.arena_bytes) for each in self.models) + self.state_bytes

    @property
    def flash_bytes(self) -> int:
        """Return the size of the weights and the microcode of all models. Equal weights of several models count once."""
        return sum(each.weights_bytes + each.microcode_bytes for each in self.models) - self.equal_weights_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as values for JSON."""
        names = (
            "arena_bytes", "state_bytes", "sram_bytes", "total_sram_bytes", "separate_bytes", "flash_bytes", "equal_weights_bytes",
        )  # fmt: skip
        return {
            "models": [asdict(each) for each in self.models],
            "sram_budget_bytes": self.budget_bytes,
            "regions": dict(zip(self.regions, self.regions_bytes, strict=True)),
            **{name: getattr(self, name) for name in names},
        }


def of_summaries(summaries: Sequence[Summary], weights: Sequence[Sequence[bytes]], budget_bytes: int) -> SharedMemory:
    """Return the memory of compiled models. ``weights`` has the weights of each model's programs."""
    known: set[bytes] = set()
    equal = in_sram = 0
    for summary, own in zip(summaries, weights, strict=True):
        again = sum(len(blob) for blob in own if blob in known)
        equal += again
        in_sram += summary.weights_bytes - again if summary.weights_are_in_sram else 0
        known |= set(own)
    target = summaries[0].target
    regions, chip = tuple(region.name for region in target.regions), int(target.sram.value * 1024)
    return SharedMemory(tuple(map(Share.of, summaries)), regions, budget_bytes, chip, equal, in_sram)


def shared_arena_table(memory: SharedMemory) -> RenderableType:
    """Return rows with the memory that all models take together, and below them a table with the part of each model."""
    names = ("arena",) if len(memory.regions) == 1 else memory.regions
    arena = ", ".join(f"{name} {size_text(size)}" for name, size in zip(names, memory.regions_bytes, strict=True))
    states = f"; states {size_text(memory.state_bytes)}" if memory.state_bytes else ""
    share = f"{memory.sram_bytes / memory.budget_bytes:.1%}"
    equal = f", without {size_text(memory.equal_weights_bytes)} of equal weights" if memory.equal_weights_bytes else ""
    chip = size_text(memory.chip_bytes)
    total = (
        f"{size_text(memory.total_sram_bytes)} of the chip's {chip}"
        if memory.total_sram_bytes <= memory.chip_bytes
        else f"{size_text(memory.in_sram_bytes)}: the chip's {chip} of SRAM do not hold the weights of all models and a run"
    )
    rows = [
        ("SRAM", f"{size_text(memory.sram_bytes)} of {size_text(memory.budget_bytes)} ({share}): {arena}{states}"),
        *([("With weights", total)] if memory.in_sram_bytes else []),
        ("Separate", f"{size_text(memory.separate_bytes)} with an arena for each model"),
        ("Flash", f"{size_text(memory.flash_bytes)} for weights and microcode{equal}"),
    ]
    columns = (
        Column("model", names=True),
        *(right(name, text=size_text) for name in names),
        right("state", text=size_text),
        right("weights", text=size_text),
        right("microcode", text=size_text),
    )
    table: list[tuple[str | int, ...]] = [
        (each.model, *each.arena_bytes, each.state_bytes, each.weights_bytes, each.microcode_bytes)
        for each in memory.models
    ]
    title = Text(f"{len(memory.models)} models, one after the other in one arena", "bold")
    return Group(title, facts(rows), "", Table.of_rows(columns, table, gap=4))
