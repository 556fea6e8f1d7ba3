# SPDX-License-Identifier: BSD-3-Clause
"""Give states storages in the persistent area, and copy their new values there at the end of a run.

The old and the new value of a state share one memory. So each call that writes the new value must run after all calls that read the
old value. The copies of this module run last. Kernel selection may remove such a copy and let another call write to the state, but
only if ``in_order`` still holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, copied, whole, written_in_place
from openneutron.ir import Graph, Node
from openneutron.isa import aligned
from openneutron.ops.recurrent import state_operands
from openneutron.ops.shape import VIEWS


def storages_of_states(graph: Graph) -> tuple[Storage, ...]:
    """Return a storage for each state, named like its tensor, with its address in the persistent area."""
    found = []
    at = 0
    for state in graph.states:
        size = graph[state.tensor].size_bytes
        found.append(Storage(state.tensor, size, state=at))
        at += aligned(size)
    return tuple(found)


def kept_in_place(graph: Graph) -> dict[str, str]:
    """Return the outputs of recurrent layers that are states updated in place: by output name, the tensor of the state.

    The layer must be the only reader of the old value, apart from views between the state and the layer. The new value must have no
    other readers, and be the update of only this state.
    """
    readers = graph.consumers()
    source_of = {node.outputs[0]: str(node.inputs[0]) for node in graph.nodes if node.op in VIEWS}
    update_of = {state.tensor: state.update for state in graph.states}
    kept = [state.update for state in graph.states]
    found = {}
    for node in graph.nodes:
        for name, result in zip(state_operands(node), node.outputs[1:], strict=False):
            first, last = name, result
            while first in source_of and len(readers[first]) == 1:
                first = source_of[first]
            while last not in kept and last not in graph.outputs and (view := _only_view(readers.get(last, ()))):
                last = view
            alone = len(readers.get(first, ())) == 1 and last not in readers and last not in graph.outputs
            if update_of.get(first) == last and alone and kept.count(last) == 1 and first not in kept:
                found[result] = first
    return found


def _only_view(readers: Sequence[Node]) -> str | None:
    """Return the name of the only reader's result if there is one reader and it is a view, otherwise None."""
    return readers[0].outputs[0] if len(readers) == 1 and readers[0].op in VIEWS else None


def state_bytes(graph: Graph) -> int:
    """Return the size of the persistent area of a graph's states in bytes."""
    return sum(aligned(graph[state.tensor].size_bytes) for state in graph.states)


def updates(graph: Graph, storages: Storages) -> tuple[Storages, list[KernelCall]]:
    """Return the storages, and the calls that copy the new values of states to the persistent area at the end of a run.

    If the new value of a state is the old value of another state (a delay line), it is first copied to the arena. Otherwise the copy
    of one state might overwrite the value that the next copy reads.
    """
    of, pieces = dict(storages.of), dict(storages.storages)
    before: list[KernelCall] = []
    copies: list[KernelCall] = []

    def copy(source: View, name: str, storage: Storage) -> KernelCall:
        of[name], pieces[storage.name] = storage.name, storage
        return copied(name, source, name)

    for state in graph.states:
        root = storages[state.update]
        if root.name == state.tensor:
            continue
        source = whole(graph[state.update])
        if root.state is not None:
            name = f"{state.tensor}@then"
            before.append(copy(source, name, Storage(name, root.size_bytes)))
            source = View(name, source.extents, source.pitches)
        copies.append(copy(source, f"{state.tensor}@state", pieces[state.tensor]))
    return Storages(pieces, of), [*before, *copies]


def in_order(storages: Storages, calls: Sequence[KernelCall | None]) -> bool:
    """Return whether every read of a state's old value comes before the call that overwrites the state. That call may read the old value only in place."""
    if all(storage.state is None for storage in storages.storages.values()):
        return True
    written: set[str] = set()
    for call in filter(None, calls):
        for name, view in call.views.items():
            storage = storages.of[view.tensor]
            if name != "output" and storage in written:
                return False
        for name in call.results:
            storage = storages.of[call.views[name].tensor]
            if storages.storages[storage].state is not None:
                written.add(storage)
                if name == "output" and not _reads_in_place(call, storage, storages):
                    return False
    return True


def _reads_in_place(call: KernelCall, storage: str, storages: Storages) -> bool:
    return all(
        written_in_place(call, name, storages.of)
        for name, view in call.views.items()
        if name != "output" and storages.of[view.tensor] == storage
    )
