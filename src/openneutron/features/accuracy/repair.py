# SPDX-License-Identifier: BSD-3-Clause
"""The search for the cheapest measures that reach a ratio of signal to noise at a model's results.

Measures without a cost at run time come first: observers, equalized channels, SmoothQuant, rounded weights, corrected
biases. In each round the measure with the largest gain is added. If the target is not reached, the layers with the most
noise get int16 activations; if this does not suffice, layers with the most noise stay in float. At the end, each
measure is removed without which the target is still reached.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path

import torch
from torch.fx import GraphModule

from openneutron.device import files
from openneutron.device.timings import advance, remark, step
from openneutron.features.accuracy import session
from openneutron.features.accuracy.analysis import RESULT_SAMPLES, Analysis, noise_of, power, usable
from openneutron.features.accuracy.lanes import Lanes, State, computed_all, constants_of, results, state_after
from openneutron.features.accuracy.npu_tensors import Layer, Twins, tensor_of
from openneutron.features.accuracy.report import Chosen, Cost, RepairReport, decibels
from openneutron.features.accuracy.session import Session
from openneutron.options import INT16, OBSERVERS, QuantizationOptions
from openneutron.pytorch.graph.program import module_path
from openneutron.pytorch.source.exporting import ModelInputs

LEAST_GAIN_DB = 0.25
"""A measure that gains less than this is not chosen, in dB."""

SMOOTH = 0.5
LAYERS_TRIED = 3
"""The number of layers with the most noise that are tried in a round, for observers, int16 activations and float."""

ATTEMPTS = 3
"""The largest number of searches. If the NPU's ratio is below the target although PyTorch's reaches it, the next search
has a target that is higher by the difference."""

NOISELESS_DB = 300.0
"""The value for the ratio of a model without noise, in dB."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: field ``field`` of the quantization options gets ``value``. ``words`` describes it. ``is_free`` states
    that it costs nothing at run time."""

    words: str
    field: str
    value: object
    is_free: bool = True

    def added(self, options: QuantizationOptions) -> QuantizationOptions:
        """Return the options with this measure. Fields that are lists get one more entry."""
        before = getattr(options, self.field)
        value = (
            (*before, self.value)
            if self.field in ("keep_float", "layer_activations", "layer_observers")
            else self.value
        )
        return replace(options, **{self.field: value})  # type: ignore[arg-type]


FREE = (
    Measure("equalize channels between convolutions", "equalize", True),
    Measure(f"SmoothQuant for linear layers, exponent {SMOOTH}", "smooth", SMOOTH),
    *(Measure(f"observer {name}", "observer", name) for name in OBSERVERS),
    Measure("round weights by their layers' results", "adaptive_rounding", True),
    Measure("correct biases", "correct_biases", True),
)


@dataclass(slots=True, eq=False)
class Search:
    """A search for measures. ``chosen`` has the measures so far, each with the ratio before it in dB."""

    asked: Session
    calls: Sequence[ModelInputs]
    journal: Journal
    target_db: float
    chosen: list[tuple[Measure, float]] = field(default_factory=list)
    tried: int = 0
    planned: int = 0
    """The number of sets of measures that will have been tried at the end of the present round."""
    best_db: float = -math.inf

    def options(self, without: Measure | None = None) -> QuantizationOptions:
        """Return the options with the chosen measures, except ``without``."""
        options = self.asked.request.quantization
        for measure, _ in self.chosen:
            options = options if measure is without else measure.added(options)
        return options

    def ratio(self, options: QuantizationOptions) -> float:
        """Return the ratio of signal to noise at the model's results with these options, in dB. It is computed in
        PyTorch's arithmetic, or read from the journal."""
        self.tried += 1
        known = self.journal.get(options)
        if known is None:
            both = self.asked.quantized_by(options).twins()
            known = _ratio(both, self.calls)
            self.journal.put(options, known)
        self.best_db = max(self.best_db, known)
        advance(self.tried, max(self.tried, self.planned))
        remark(f"{self.best_db:.1f} of {self.target_db:.1f} dB")
        return known

    def run(self) -> float:
        """Choose measures until the target is reached or no measure gains enough. Return the ratio with the chosen
        measures, in dB."""
        now = self.ratio(self.options())
        for candidates in (self._free, self._observers, self._wide, self._float):
            while now < self.target_db:
                round_of = list(candidates())
                self.planned = self.tried + len(round_of)
                found = [(self.ratio(item.added(self.options())), item) for item in round_of]
                if not found:
                    break
                best_db, best = max(found, key=lambda pair: pair[0])
                if best_db < now + LEAST_GAIN_DB:
                    break
                self.chosen.append((best, now))
                now = best_db
        for measure, _ in reversed(list(self.chosen[:-1])):
            if now >= self.target_db and self.ratio(self.options(measure)) >= self.target_db:
                self.chosen = [item for item in self.chosen if item[0] is not measure]
        return self.ratio(self.options())

    def _free(self) -> Iterator[Measure]:
        taken = {measure.field for measure, _ in self.chosen}
        options = self.asked.request.quantization
        for measure in FREE:
            if measure.field not in taken and getattr(options, measure.field) != measure.value:
                yield measure

    def _observers(self) -> Iterator[Measure]:
        known = {name for name, _ in self.options().layer_observers}
        names = (module_path(layer.source) for layer in self._noisiest())
        for name in dict.fromkeys(name for name in names if name and name not in known):
            for observer in OBSERVERS:
                yield Measure(f"{name}: observer {observer}", "layer_observers", (name, observer))

    def _wide(self) -> Iterator[Measure]:
        """Yield a measure for each of the noisiest layers: int16 activations. Yield nothing if the target's programs
        have no int16 operators."""
        known = {name for name, _ in self.options().layer_activations}
        if not self.asked.request.options.takes_int16 or self.asked.request.quantization.activations == INT16:
            return
        names = dict.fromkeys(module_path(layer.lead) for layer in self._noisiest())
        for name in [name for name in names if name and name not in known]:
            yield Measure(f"{name} in 16 bits", "layer_activations", (name, INT16), is_free=False)

    def _float(self) -> Iterator[Measure]:
        """Yield a measure for each of the noisiest layers: its module stays in float, or all calls of its operator if
        it has no module."""
        names = dict.fromkeys(module_path(layer.lead) or str(layer.lead.target) for layer in self._noisiest())
        for name in names:
            yield Measure(f"{name} in float", "keep_float", name, is_free=False)

    def _noisiest(self) -> list[Layer]:
        """Return up to ``LAYERS_TRIED`` layers with the most noise at the results, the noisiest first."""
        both = self.asked.quantized_by(self.options()).twins()
        analysis = Analysis(Lanes.of(both))
        for call in self.calls[:RESULT_SAMPLES]:
            analysis.add(call)
        layers = [layer for layer in analysis.lanes.layers if layer.operator != "input"]
        layers.sort(key=lambda layer: -analysis.sums[layer].at_results)
        return [layer for layer in layers[:LAYERS_TRIED] if analysis.sums[layer].at_results]


def _ratio(both: Twins, calls: Sequence[ModelInputs]) -> float:
    signal = noise = 0.0
    modules = both.real, both.quantized
    constants = [constants_of(module, both.state) for module in modules]
    states: list[State] = [both.state, both.state]
    for call in calls:
        values = [computed_all(*side) for side in zip(modules, repeat(call), constants, states)]
        states = [state_after(*side) for side in zip(modules, values, states, strict=True)]
        wanted, found = map(results, modules, values)
        signal += sum(power(usable(item)) for item in wanted)
        noise += noise_of(wanted, found)
    value = decibels(signal, noise)
    return NOISELESS_DB if value is None else value


def repaired(asked: Session, calls: Sequence[ModelInputs], target_db: float, journal: Path | None) -> RepairReport:
    """Return the report of a search for measures with these samples. ``journal`` is a file from which an interrupted
    search continues; None for none. An interrupt ends the search, and the report has the best measures until
    then."""
    settings = repr(
        (sorted(asked.request.quantization.to_file().items()), asked.request.delegation, asked.request.options.target)
    )
    known = Journal(journal, digest(asked.source.module, [*asked.samples, *calls], settings))
    search = Search(asked, calls, known, target_db)
    complete = True
    before_db, before = _measured(asked, calls)
    after_db, after = before_db, before
    try:
        for _ in range(ATTEMPTS):
            with step("Searching measures"):
                ratio = search.run()
            if search.chosen:
                after_db, after = _measured(asked.quantized_by(search.options()), calls)
            if after_db >= target_db or ratio < search.target_db:
                break
            # The NPU rounds otherwise than PyTorch does.
            search.target_db += target_db - after_db
    except KeyboardInterrupt:
        complete = False
        after_db, after = _measured(asked.quantized_by(search.options()), calls)
    quantization = asked.request.quantization
    steps: list[Chosen] = []
    ratio = search.ratio(quantization) if search.chosen else 0.0
    for measure, _ in search.chosen:
        quantization = measure.added(quantization)
        gained = search.ratio(quantization)
        cost = None if measure.is_free else _cost(asked.quantized_by(quantization))
        steps.append(Chosen(measure.words, ratio, gained, cost))
        ratio = gained
    if complete:
        known.remove()
    return RepairReport(
        asked.request.name,
        asked.request.options.target,
        target_db,
        before_db,
        after_db,
        tuple(steps),
        before,
        after,
        quantization.to_file(),
        len(known.known),
        complete,
    )


def _measured(asked: Session, calls: Sequence[ModelInputs]) -> tuple[float, Cost]:
    """Compile the model. Return the ratio at the results on the simulated NPU in dB, and the costs of the program."""
    both = asked.twins()
    program = session.compiled(both, asked)
    ready = session.lanes(both, program)
    signal = noise = 0.0
    real_state = state = both.state
    for call in calls:
        real, real_state = ready.float_values(call, real_state)
        wanted = ready.float_results(real)
        _, found, state = ready.accumulated(call, state)
        signal += sum(power(usable(item)) for item in wanted)
        noise += noise_of(wanted, found)
    value = decibels(signal, noise)
    return NOISELESS_DB if value is None else value, session.cost(program)


def _cost(asked: Session) -> Cost:
    return session.cost(session.compiled(asked.twins(), asked))


def digest(module: GraphModule, calls: Iterable[ModelInputs], settings: str) -> str:
    """Return the hash of a model with its weights, of samples, and of ``settings``."""
    made = hashlib.sha256(settings.encode())
    for node in module.graph.nodes:
        made.update(repr((node.op, str(node.target), node.args, node.kwargs)).encode())
        if node.op == "get_attr":
            _add(made, tensor_of(module, node))
    for call in calls:
        for tensor in call.tensors:
            _add(made, tensor)
    return made.hexdigest()


def _add(made: hashlib._Hash, tensor: torch.Tensor) -> None:
    made.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


@dataclass(slots=True)
class Journal:
    """The ratios of the sets of measures that were tried, by the text of their quantization files. They are stored in
    the file ``path``; with None, only in memory.

    ``key`` identifies the model, its data and its settings. A file with another key, or one that can't be read, counts
    as empty.
    """

    path: Path | None
    key: str
    known: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        try:
            found = json.loads(self.path.read_text())
            if found["key"] == self.key:
                self.known = {str(name): float(value) for name, value in found["known"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.known = {}

    def get(self, options: QuantizationOptions) -> float | None:
        """Return the ratio of a set of measures in dB; None if the set was not tried."""
        return self.known.get(_name(options))

    def put(self, options: QuantizationOptions, value: float) -> None:
        """Store the ratio of a set of measures."""
        self.known[_name(options)] = value
        if self.path is not None:
            files.write({self.path: json.dumps({"key": self.key, "known": self.known}).encode()})

    def remove(self) -> None:
        """Delete the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _name(options: QuantizationOptions) -> str:
    return json.dumps(options.to_file(), sort_keys=True)
