# SPDX-License-Identifier: BSD-3-Clause
"""Lay out all storages: compute their live ranges from the schedule, and take their addresses from a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openneutron.compiler.place.place import EXACT_WORK, Item, Placement, live_bound, place
from openneutron.compiler.schedule.schedule import Loop, Schedule, Wait
from openneutron.compiler.select.calls import Storage, Storages
from openneutron.compiler.select.states import state_bytes
from openneutron.ir import Graph
from openneutron.isa import aligned, base, base_text
from openneutron.isa.rows import REGIONS
from openneutron.options import CALLER


@dataclass(frozen=True, slots=True)
class Layout:
    """The addresses of all storages without constants.

    ``homes`` has the base word and the byte offset of each storage. ``items`` are the buffers of the arena, which ``placement`` gives
    addresses. Where kernels work on a memory of the NPU, the arena is in that memory, and ``external_bytes`` is the size of the tensors
    in external memory. Where a CPU's buffers are in several memory regions (compiler/search/regions.py), ``far`` gives those in
    ``far_items`` their addresses, with an entry for each region but the first; both are empty where one region has all buffers.
    ``third_bytes`` is the size of those in the third region.
    """

    homes: Mapping[str, tuple[int, int]]
    items: tuple[Item, ...]
    placement: Placement
    external_bytes: int = 0
    far: tuple[Placement, ...] = ()
    far_items: tuple[tuple[Item, ...], ...] = ()
    third_bytes: int = 0

    @property
    def scratch_bytes(self) -> int:
        """Return the size of the arena in bytes."""
        return self.placement.size

    @property
    def regions_bytes(self) -> tuple[int, ...]:
        """Return the size of the buffers in each memory region in bytes."""
        return self.placement.size, *(placement.size for placement in self.far)

    def __str__(self) -> str:
        """Return the buffers with address, size and live range in steps (-1: before the first one)."""
        placed, offsets = {item.name for item in self.items}, self.placement.offsets
        lines = [f"arena {self.scratch_bytes} B, lower bound {self.placement.bound} B"]
        for item in sorted(self.items, key=lambda item: (item.first, offsets[item.name])):
            span = f"0x{offsets[item.name]:x} to 0x{offsets[item.name] + item.size:x}"
            lines.append(f"  %{item.name}: {span}, {item.size} B, live in steps {item.first} to {item.last}")
        others = {name: home for name, home in self.homes.items() if name not in placed}
        return "\n".join([*lines, *(f"  %{name}: {base_text(word)}+0x{at:x}" for name, (word, at) in others.items())])


def storage_bytes(storage: Storage, schedule: Schedule, storages: Storages) -> int:
    """Return the bytes that a storage takes: those of its rolling buffer if it has one, otherwise those of all rows."""
    ring = schedule.rings.get(storage.name)
    if ring is None:
        return storage.size_bytes
    for call in schedule.calls:
        for view in call.views.values():
            if storages.of[view.tensor] == storage.name:
                return ring * view.pitches[1]
    raise AssertionError(f"{storage.name} is a rolling buffer that no call uses")


def lay_out(
    schedule: Schedule, storages: Storages, io: str, work: float = EXACT_WORK, reserved: Sequence[Item] = ()
) -> Layout:
    """Return the layout of all storages that a call uses or that are inputs or outputs.

    ``place`` describes ``work``. ``reserved`` are further buffers that the placement leaves space for; the layout does not have them.
    """
    items, homes, external = _items(schedule, storages, io)
    overlaps = _overlaps(schedule, items)
    placement = place([*items, *reserved], overlaps, work)
    if reserved:
        offsets = {item.name: placement.offsets[item.name] for item in items}
        size = max((offsets[item.name] + item.size for item in items), default=0)
        placement = replace(placement, offsets=offsets, size=size, bound=live_bound(items, overlaps))
    return _layout(items, homes, placement, schedule, external)


def laid_out_at(placement: Placement, schedule: Schedule, storages: Storages, io: str) -> Layout:
    """Return the layout of a schedule whose buffers have the addresses of ``placement``.

    Its bound is the larger of the bound of ``placement`` and ``live_bound``.
    """
    items, homes, external = _items(schedule, storages, io)
    bound = max(placement.bound, live_bound(items, _overlaps(schedule, items)))
    return _layout(items, homes, replace(placement, bound=bound), schedule, external)


def in_several_buffers(
    layout: Layout, schedule: Schedule, near: Sequence[Mapping[str, int]], work: float = EXACT_WORK
) -> Layout:
    """Return the layout with its buffers in several memory regions: ``near`` has those of each region, and all others are in one more.

    ``near`` has an address for each of its buffers, which the result has where no smaller placement is found. No region takes more than
    the layout's one buffer, in which all of them have their addresses. ``place`` describes ``work``.
    """
    taken = {name for names in near for name in names}
    divided = [tuple(item for item in layout.items if item.name in names) for names in near]
    divided.append(tuple(item for item in layout.items if item.name not in taken))
    placed = []
    for items, given in zip(divided, (*near, layout.placement.offsets), strict=True):
        overlaps = _overlaps(schedule, items)
        found = place(items, overlaps, work)
        for known in (given, layout.placement.offsets):
            offsets = {item.name: known[item.name] for item in items}
            size = max((offsets[item.name] + item.size for item in items), default=0)
            if size < found.size:
                found = replace(found, offsets=offsets, size=size)
        found.verify(items, overlaps)
        placed.append(found)
    homes = dict(layout.homes)
    for buffer, placement in zip(REGIONS, placed, strict=False):
        homes.update((name, (base(buffer), offset)) for name, offset in placement.offsets.items())
        homes.update(
            (name, (base(buffer), placement.offsets[allocation] + offset))
            for name, (allocation, offset) in schedule.allocations.items()
            if allocation in placement.offsets
        )
    scratch, *far = placed
    third = sum(placement.size for placement in far[1:])
    made = replace(layout, homes=homes, items=divided[0], placement=scratch, third_bytes=third)
    return replace(made, far=tuple(far), far_items=tuple(divided[1:]))


def _layout(
    items: list[Item], homes: dict[str, tuple[int, int]], placement: Placement, schedule: Schedule, external: list[Item]
) -> Layout:
    placement.verify(items, _overlaps(schedule, items))
    outer = place(external, {}, 0.0)
    homes.update((name, (base("SCRATCH"), offset)) for name, offset in outer.offsets.items())
    scratch = base("PREFETCH" if schedule.is_tiled else "SCRATCH")
    homes.update((name, (scratch, offset)) for name, offset in placement.offsets.items())
    homes.update(
        (name, (scratch, homes[allocation][1] + offset)) for name, (allocation, offset) in schedule.allocations.items()
    )
    return Layout(homes, tuple(items), placement, outer.size)


def _overlaps(schedule: Schedule, items: Sequence[Item]) -> dict[tuple[str, str], int]:
    return schedule.overlaps_of(item.name for item in items)


def _items(
    schedule: Schedule, storages: Storages, io: str
) -> tuple[list[Item], dict[str, tuple[int, int]], list[Item]]:
    """Return the buffers of the arena, the homes of inputs and outputs in the caller's buffers, and the buffers of external
    memory."""
    touched = _steps_of_storages(schedule, storages)
    homes: dict[str, tuple[int, int]] = {}
    items, external = [], []
    shared: dict[str, Item] = {}
    for name, storage in storages.storages.items():
        if storage.constant is not None:
            continue
        home = _home_outside(storage, io)
        first, last = touched.get(name, (0, 0))
        first = -1 if storage.is_given else first
        last = len(schedule.steps) if storage.is_kept else last
        if home is not None:
            homes[name] = home
        elif storage.external:
            external.append(Item(name, aligned(storage.size_bytes), first, last))
        elif name in schedule.allocations:
            allocation, offset = schedule.allocations[name]
            size = offset + aligned(storage_bytes(storage, schedule, storages))
            whole = shared.get(allocation, Item(allocation, size, first, last))
            shared[allocation] = Item(allocation, max(whole.size, size), min(whole.first, first), max(whole.last, last))
        elif name in touched or storage.is_border:
            items.append(Item(name, max(aligned(storage_bytes(storage, schedule, storages)), aligned(1)), first, last))
    return [*items, *shared.values()], homes, external


def _steps_of_storages(schedule: Schedule, storages: Storages) -> dict[str, tuple[int, int]]:
    """Return the first and the last step that use each storage. A transfer uses its storages until a step waits for its channel."""
    steps: dict[str, tuple[int, int]] = {}
    moving: dict[int, set[str]] = {}

    def use(name: str, index: int) -> None:
        first, _ = steps.get(name, (index, index))
        steps[name] = (first, index)

    for index, step in enumerate(schedule.steps):
        for call in schedule.calls_of(step):
            for view in call.views.values():
                name = storages.of[view.tensor]
                use(name, index)
                if call.is_transfer:
                    moving.setdefault(call.params["channel"], set()).add(name)
        for part in step.body if isinstance(step, Loop) else (step,):
            for name in moving.pop(part.channel, ()) if isinstance(part, Wait) else ():
                use(name, index)
    return steps


def _home_outside(storage: Storage, io: str) -> tuple[int, int] | None:
    """Return the base word and offset of a state, or of an input or output in the caller's buffer; None for a storage of the arena."""
    if storage.state is not None:
        return base("STATE"), storage.state
    if io != CALLER:
        return None
    if storage.input is not None:
        return base("INPUT", storage.input), 0
    return (base("OUTPUT", storage.output), 0) if storage.output is not None else None


def bytes_outside(graph: Graph, io: str) -> int:
    """Return the bytes of SRAM outside the arena and the prefetch buffer: states, and inputs and outputs in the caller's buffers."""
    io_bytes = sum(graph[name].size_bytes for name in (*graph.inputs, *graph.outputs)) if io == CALLER else 0
    return state_bytes(graph) + io_bytes
