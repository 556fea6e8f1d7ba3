# SPDX-License-Identifier: BSD-3-Clause
"""The cases that compile graphs: trained and made networks, every operator alone, random graphs, files of several kinds, and other chips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.mixed import compile_file
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.isa import Program
from scripts.published_networks import cifarnet, mobilenet_v1
from tests.replay.records import Case, digest
from tests.support import attention_graphs, random_graphs, random_wide, stateful_graphs
from tests.support.litert_files import branching_file, mixed_file
from tests.support.made_networks import NETWORKS, TRAINED_MODELS
from tests.support.random_images import batched_graph, chain_graph, image_graph, sequence_graph
from tests.support.uint8_files import network

FETCH = CompileOptions(prefetch_constants=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """Options, a budget in percent of the SRAM that the same options take without a budget (None: no budget), and a chip."""

    options: CompileOptions = CompileOptions()
    percent: int | None = None
    chip: str = "imxrt700"

    def compiled(self, make: Callable[[], Graph]) -> str:
        """Return the hash of the program; where the budget is infeasible, the least budget and the hash of its program."""
        graph = make()
        if self.percent is None:
            return _program_hash(graph, self.chip, self.options)
        budget = max(1, _whole_bytes(make, self.chip, replace(self.options, effort="default")) * self.percent // 100)
        try:
            return _program_hash(graph, self.chip, replace(self.options, sram_budget=budget))
        except BudgetError as error:
            least = replace(self.options, sram_budget=error.least_bytes)
            return f"least {error.least_bytes} {_program_hash(graph, self.chip, least)}"


@lru_cache(maxsize=8)
def _whole_bytes(make: Callable[[], Graph], chip: str, options: CompileOptions) -> int:
    """Return the SRAM that a graph takes without a budget; several settings of one graph ask for it."""
    return compile_graph(make(), targets.get(chip), options).report.sram_bytes


def _program_hash(graph: Graph, chip: str, options: CompileOptions) -> str:
    program: Program = compile_graph(graph, targets.get(chip), options).program
    return digest(program.microcode + program.weights + program.kernels)


SETTINGS: Mapping[str, Setting] = {
    "default": Setting(),
    "caller-io": Setting(CompileOptions(io_place="caller")),
    "profile": Setting(CompileOptions(profile=True)),
    "budget-80": Setting(percent=80),
    "budget-60": Setting(percent=60),
    "budget-40": Setting(percent=40),
    "least-budget": Setting(percent=0),
    "caller-io-least-budget": Setting(CompileOptions(io_place="caller"), 0),
    "fetch": Setting(FETCH),
    "fetch-budget-60": Setting(FETCH, 60),
    "fetch-least-budget": Setting(FETCH, 0),
    "fetch-caller-io-budget-40": Setting(replace(FETCH, io_place="caller"), 40),
    "high-effort-budget-60": Setting(CompileOptions(effort="high"), 60),
}
"""The options of the cases, by the last part of a case's name."""

LARGE = {"mobilenet_v2_224_random_int8", "mobilenet_v1"}
FOR_LARGE = {"default", "budget-60", "least-budget", "fetch-budget-60"}
"""Made networks that are compiled in few settings, since they take a second in each."""

RANDOM: Mapping[str, tuple[Callable[[int], Graph], int]] = {
    "graph": (random_graphs.several, 80),
    "image": (image_graph, 50),
    "chain": (chain_graph, 30),
    "sequence": (sequence_graph, 20),
    "batches": (lambda seed: batched_graph(seed, 2 + seed % 3), 20),
}
"""The generators of random graphs, and the number of graphs of each."""

CHIPS: Mapping[str, Sequence[str]] = {
    "mcxn94x": ("default", "budget-60", "least-budget", "fetch-budget-60"),
    "imx95": ("default", "budget-60", "least-budget"),
    "imx943": ("default", "budget-60", "least-budget"),
}
"""A chip of each further class, with the settings of its cases."""

ON_EVERY_CHIP: Mapping[str, Callable[[], Graph]] = {
    **{name: make for name, make in NETWORKS.items() if name not in LARGE},
    "encoder": partial(attention_graphs.block, 1, 1, 16, 4, 8),
    "windows": partial(attention_graphs.windowed_block, 2, 2, 4, 2, 8),
    "lstm": partial(random_graphs.single, "unidirectional_sequence_lstm", 3),
    "gru": partial(random_graphs.single, "gru", 5),
    "state": stateful_graphs.streaming_convolution,
    "int16": partial(random_wide.several, 7, 6, 6),
}
"""Networks whose programs are on record for every class of chip."""

FILES: Mapping[str, Callable[[], bytes]] = {
    "mixed": mixed_file,
    "branching": branching_file,
    "uint8": network,
}
"""Files of which the CPU keeps a part, or that are not int8."""


def trained() -> Iterator[Case]:
    """Every model of the folder of trained models in every setting; none where the folder is absent."""
    for path in sorted(TRAINED_MODELS.glob("*.tflite")):
        make = partial(_read, path.read_bytes())
        yield from (_case(f"trained/{path.stem}/{setting}", setting, make) for setting in SETTINGS)


def made() -> Iterator[Case]:
    """The networks that the suite makes, and the two whose latency is published."""
    for name, make in {**NETWORKS, "cifarnet": cifarnet, "mobilenet_v1": mobilenet_v1}.items():
        settings = [setting for setting in SETTINGS if name not in LARGE or setting in FOR_LARGE]
        yield from (_case(f"made/{name}/{setting}", setting, make) for setting in settings)


def operators() -> Iterator[Case]:
    """Each operator of the table alone: one hash of its samples, each in the next setting."""
    for op in sorted(random_graphs.SAMPLERS):
        yield Case(f"operator/{op}/every-setting", partial(_samples_hash, op))


def random() -> Iterator[Case]:
    """200 random graphs, in one setting after the other."""
    settings = list(SETTINGS)
    for kind, (generator, count) in RANDOM.items():
        for seed in range(count):
            setting = settings[seed % len(settings)]
            yield _case(f"random/{kind}-{seed:02}/{setting}", setting, partial(generator, seed))


def files() -> Iterator[Case]:
    for name, make in FILES.items():
        yield Case(f"file/{name}/default", partial(_compiled_file, make, name))


GROUPS: Mapping[str, Callable[[], Iterator[Case]]] = {
    each.__name__: each for each in (trained, made, operators, random, files)
}
"""The generators of cases by their names."""


def chips() -> Iterator[Case]:
    """Networks and ten random graphs of each kind on every further class of chip."""
    for chip, settings in CHIPS.items():
        graphs = dict(ON_EVERY_CHIP)
        for kind, (generator, _) in RANDOM.items():
            graphs |= {f"{kind}-{seed}": partial(generator, 500 + seed) for seed in range(10)}
        for at, (name, make) in enumerate(graphs.items()):
            for setting in settings if name in ON_EVERY_CHIP else (settings[at % len(settings)],):
                yield Case(f"{chip}/{name}/{setting}", partial(replace(SETTINGS[setting], chip=chip).compiled, make))


def _case(name: str, setting: str, make: Callable[[], Graph]) -> Case:
    return Case(name, partial(SETTINGS[setting].compiled, make))


def _samples_hash(op: str) -> str:
    samples = [_case("", name, partial(random_graphs.single, op, seed)) for seed, name in enumerate(SETTINGS)]
    return digest("\n".join(sample.record() for sample in samples).encode())


def _read(data: bytes) -> Graph:
    return litert.read(data).graph


def _compiled_file(make: Callable[[], bytes], name: str) -> str:
    return digest(compile_file(litert.read(make()), name).to_bytes())
