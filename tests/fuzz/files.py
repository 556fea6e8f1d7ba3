# SPDX-License-Identifier: BSD-3-Clause
"""Damaged files: ``python -m tests.fuzz.files [FIRST [END]]`` goes through the mutants of small files, in an order that a seed shuffles.

A mutant is a file one of whose words is another number: all words of its flatbuffer, such as offsets, lengths, indices, extents and
enumerators, become values at the ends of their ranges and near each other. Each mutant goes through what the commands do with such a
file. It works, or ends in an OpenNeutronError, and takes bounded memory: the process may have MOST_BYTES of address space more
than it has at first.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np

from openneutron import litert
from openneutron.api.litert import compile_litert
from openneutron.api.load import load
from openneutron.compiler import compile_graph
from openneutron.device import cache as stored
from openneutron.device import pte
from openneutron.device.cache import LENGTH_BYTES
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.errors import OpenNeutronError
from openneutron.features.export.read import read_pte, read_tflite
from openneutron.features.listing.command import programs as listed
from openneutron.isa import decode, listing
from openneutron.litert.neutron_graph import find
from openneutron.options import DelegationOptions, Request
from tests.support import oracle, random_graphs
from tests.support.litert_files import branching_file, mixed_file, wide_file
from tests.support.pte_files import pte_file
from tests.support.recurrent_files import Svdf, lstm_file, svdf_file
from tests.support.stream_files import compiled_stream, streaming_file
from tests.support.uint8_files import network

MOST_BYTES = 1 << 30
WORD = 4
VALUES = (0, 1, 2, 3, 255, 2**15, 2**24, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
"""Values that replace a word, beside its neighbours, its negative and the size of the file."""


def _compiled() -> bytes:
    return compile_file(litert.read(mixed_file(signature=True)), "m").to_bytes()


def _entry() -> bytes:
    return stored.written_compiled(compile_graph(random_graphs.single("conv_2d", 1), oracle.TARGET))


SEEDS: Mapping[str, Callable[[], bytes]] = {
    "mixed.tflite": lambda: mixed_file(signature=True),
    "stream.tflite": lambda: streaming_file(np.full((1, 2, 4, 2), -3, np.int8)),
    "branching.tflite": branching_file,
    "wide.tflite": wide_file,
    "uint8.tflite": network,
    "lstm.tflite": lambda: lstm_file(0),
    "svdf.tflite": lambda: svdf_file(Svdf(), 0),
    "compiled.tflite": _compiled,
    "compiled_stream.tflite": compiled_stream,
    "inline.pte": lambda: pte_file(False),
    "segments.pte": lambda: pte_file(True),
    "entry.program": _entry,
}


@cache
def seed(name: str) -> bytes:
    """Return a file without damage."""
    return SEEDS[name]()


def mutants(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the mutants of a file, each with its description."""
    data = seed(name)
    for place in range(0, len(data) - WORD + 1, WORD):
        (word,) = struct.unpack_from("<I", data, place)
        for value in dict.fromkeys((*VALUES, word + 1, word - 1, word ^ 0xFF00, -word, len(data))):
            value &= 2**32 - 1
            if value != word:
                yield f"{name}: word {place} is {value}", data[:place] + struct.pack("<I", value) + data[place + WORD :]


def mutants_of_json(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield entries of the cache whose JSON has another value at one place."""
    data = seed(name)
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    facts = json.loads(data[LENGTH_BYTES:end])
    for words, changed in changed_values(facts):
        header = json.dumps(changed()).encode()
        yield f"{name}: {words}", len(header).to_bytes(LENGTH_BYTES, "little") + header + data[end:]


OTHER_VALUES = (None, -1, 2**70, 1.5, "x", [], {}, [[[]]], True)
"""Values that replace one of JSON."""


def changed_values(facts: object) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield functions that return a copy of what JSON holds with another value at one place, each with its description."""
    for path in _paths(facts):
        for value in OTHER_VALUES:
            yield f"{path} is {value!r}", partial(_changed, facts, path, value)


def _changed(facts: object, path: tuple[str | int, ...], value: object) -> object:
    found = changed = json.loads(json.dumps(facts))
    *steps, last = path
    for step in steps:
        found = found[step]
    found[last] = value
    return changed


def _paths(facts: object) -> Iterator[tuple[str | int, ...]]:
    pairs = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    for key, value in pairs:
        yield (key,)
        yield from ((key, *rest) for rest in _paths(value))


def use(name: str, data: bytes, running: bool) -> None:
    """Do what the commands do with a file; with ``running`` also run it. Raises OpenNeutronError for a file that is refused."""
    suffix = Path(name).suffix
    if suffix == ".program":
        graph = random_graphs.single("conv_2d", 1)
        found = stored.read_compiled(data, graph)
        if found is not None:
            str(found.report)
        stored.read_front(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        if suffix == ".pte":
            _use_pte(path, data)
        else:
            _use_tflite(path, running)


def _use_pte(path: Path, data: bytes) -> None:
    for method in pte.methods(data, path.name):
        str(method)
    for attempt in (
        lambda: [listing(decode(program)) for _, program in listed(path)],
        lambda: load(path).summary(),
        lambda: read_pte(data, path.name, "model"),
    ):
        _refused_or_not(attempt)


def _use_tflite(path: Path, running: bool) -> None:
    model = litert.read(path)
    nodes = find(model.model)
    if nodes:
        for attempt in (
            lambda: [listing(decode(program)) for _, program in listed(path)],
            lambda: load(path).summary(),
            lambda: read_tflite(path, "model"),
        ):
            _refused_or_not(attempt)
    else:
        made = compile_litert(Request(model=model, name=path.name, delegation=DelegationOptions(must_delegate=False)))
        made.summary()
        json.dumps(made.report.to_dict(details=True))
    if running:
        simulator = FileSimulator(path)
        inputs = [np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in simulator.inputs]
        simulator.run(inputs)


def _refused_or_not(attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except OpenNeutronError as error:
        assert str(error).endswith("."), str(error)


def fault(name: str, data: bytes, running: bool = False) -> str:
    """Return what is wrong with the way in which a mutant ends; empty for a good one."""
    return fault_of(lambda: use(name, data, running))


def fault_of(attempt: Callable[[], object]) -> str:
    """Return what is wrong with the way in which a use of a mutant ends; empty for a good one."""
    try:
        attempt()
    except OpenNeutronError as error:
        return "" if str(error).strip() else "an empty message"
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "openneutron" in frame.filename] or frames
        return f"{type(error).__name__}: {str(error)[:80]} ({Path(own[-1].filename).name}, line {own[-1].lineno})"
    return ""


def limit_memory() -> None:
    """Let this process have MOST_BYTES of address space more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def every() -> list[tuple[str, str, bytes]]:
    """Return all mutants with the names of their files, shuffled in an order that is always the same."""
    found = [
        (name, words, data)
        for name in SEEDS
        for words, data in (mutants_of_json(name) if name.endswith(".program") else mutants(name))
    ]
    random.Random(0).shuffle(found)
    return found


RUN_EVERY = 10
"""One mutant of so many is run too: a run starts LiteRT in another process."""


def main(first: int = 0, end: int | None = None) -> int:
    """Go through these mutants; print each kind of fault once, and the counts. Return 1 where there were faults."""
    chosen = every()[first:end]
    limit_memory()
    return report(
        (words, fault(name, data, place % RUN_EVERY == 0)) for place, (name, words, data) in enumerate(chosen)
    )


def report(ended: Iterable[tuple[str, str]]) -> int:
    """Print each kind of fault once, with the first mutant that has it, and the counts. Return 1 where there were faults."""
    faults: dict[str, int] = {}
    count = 0
    for words, found in ended:
        count += 1
        if found:
            if found not in faults:
                print(f"{words}: {found}", flush=True)
            faults[found] = faults.get(found, 0) + 1
    print(f"{count} mutants, {sum(faults.values())} faults of {len(faults)} kinds")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
