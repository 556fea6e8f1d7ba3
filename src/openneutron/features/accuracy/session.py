# SPDX-License-Identifier: BSD-3-Clause
"""An accuracy session: one model with its samples and options, quantized, compiled and compared with float; and the search for the cheapest
measures that reach a signal-to-noise ratio."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from operator import length_hint
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.data import DataLoader, Dataset

from openneutron.device import files
from openneutron.device.data import Sample
from openneutron.device.third_party import suppressed
from openneutron.device.timings import advance, remark, step
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.accuracy.analysis import RESULT_SAMPLES, Analysis, analysed, noise_of, signal_of
from openneutron.features.accuracy.boxes import boxes_agreement, finds_boxes
from openneutron.features.accuracy.lanes import Lanes, State, computed_all, constants_of, results, state_after
from openneutron.features.accuracy.npu_tensors import (
    Layer,
    Twins,
    is_quantized,
    observed,
    of_quantized,
    tensor_of,
    twins,
)
from openneutron.features.accuracy.report import AccuracyReport, Chosen, Cost, RepairReport, decibels
from openneutron.features.evaluation.metrics import Metric
from openneutron.options import INT16, OBSERVERS, DataOptions, QuantizationOptions, Request, changed
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_quantize, module_path
from openneutron.pytorch.quantizer.calibrate import MEASURES, quantizer_for
from openneutron.pytorch.source.calibration_data import Calibration, CalibrationData, samples
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, Run, aten_graph, export, lifted

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
    """A change of the quantization options that may reduce noise: field ``field`` gets ``value``, or one more entry
    if the field is a list. ``words`` describes it. ``is_free`` states that it costs nothing at run time."""

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
        measures, in dB. If the target is reached, the measures are then checked, the last one first, and each one
        that the target does not need is removed."""
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
        """Yield a measure for each of the noisiest layers that belongs to a module: int16 activations of this module.
        Yield nothing if the target's programs have no int16 operators, or if all activations are in int16 already."""
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
        """Return up to ``LAYERS_TRIED`` layers with the most noise at the results, the noisiest first. Inputs of the
        model and layers without noise at the results are left out."""
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
        signal += signal_of(wanted)
        noise += noise_of(wanted, found)
    value = decibels(signal, noise)
    return NOISELESS_DB if value is None else value


def repaired(asked: Session, calls: Sequence[ModelInputs], target_db: float, journal: Path | None) -> RepairReport:
    """Return the report of a search for measures with these samples. ``journal`` is a file from which an interrupted
    search continues, and which is deleted when the search completes; None if there is no such file. An interrupt ends
    the search, and the report has the measures chosen until then."""
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
    """Compile the model. Return the ratio of signal to noise of its results on the simulated NPU against the float
    model, in dB, and the cost of the program. The ratio is ``NOISELESS_DB`` if there is no noise."""
    both = asked.twins()
    program = compiled(both, asked)
    ready = lanes(both, program)
    signal = noise = 0.0
    real_state = state = both.state
    for call in calls:
        real, real_state = ready.float_values(call, real_state)
        wanted = ready.float_results(real)
        _, found, state = ready.accumulated(call, state)
        signal += signal_of(wanted)
        noise += noise_of(wanted, found)
    value = decibels(signal, noise)
    return NOISELESS_DB if value is None else value, cost(program)


def _cost(asked: Session) -> Cost:
    return cost(compiled(asked.twins(), asked))


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


MOST_PICTURES = 16
"""The largest number of pictures whose boxes are compared."""


@dataclass(frozen=True, eq=False)
class Session:
    """A model, float or quantized already, with its calibration samples and the options of its compile."""

    request: Request
    compile_module: Callable[..., Any]
    """The function of ``openneutron.api.pytorch`` that compiles a module. It is passed in, since this package must not
    import the API."""

    @cached_property
    def source(self) -> AtenGraph:
        """Return the model's ATen graph, which is exported at the first access."""
        graph_of = aten_graph
        if changed(self.request.inputs):
            from openneutron.pytorch.frames import graph_of_frames

            graph_of = graph_of_frames
        with suppressed(), step("Exporting"):
            return graph_of(self.request)

    @cached_property
    def samples(self) -> list[ModelInputs]:
        """Return the calibration samples. Raises InvalidOptionError without any."""
        with step("Reading the samples"):
            found = Calibration.of(self.request.calibration, self.source.inputs, self.request.data)
            read = [] if found is None else list(found)
        if not read:
            raise InvalidOptionError(
                "calibration: there are no samples; int8 scales come from at least one. "
                "Pass some typical inputs, each a tuple of the model's arguments."
            )
        return read

    @cached_property
    def is_quantized(self) -> bool:
        """Return whether the model is quantized already. Raises InvalidOptionError for such a model if ``keep_float``
        or an option in ``MEASURES`` is set."""
        found = is_quantized(self.source)
        for option in (
            [name for name in ("keep_float", *MEASURES) if name in changed(self.request.quantization)] if found else []
        ):
            raise InvalidOptionError(f"{option}: '{self.request.name}' is quantized already. Pass the float model.")
        return found

    def quantized_by(self, quantization: QuantizationOptions) -> Session:
        """Return a session of the same model with other quantization options."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, quantization=quantization))

    def twins(self) -> Twins:
        """Return the quantized model and its float twin."""
        if self.is_quantized:
            return of_quantized(self.source, self.request.name)
        options, quantization = self.request.options, self.request.quantization
        quantizer = quantizer_for(quantization, NeutronTargetSpec(options.target), converter=options.converter)
        return twins(self.source, quantizer, self.samples, self.request.name, quantization)


@dataclass(frozen=True, eq=False)
class Labelled:
    """The samples to compare with, each with its label, or without one if the data has no labels."""

    given: Any
    inputs: ModelInputs
    options: DataOptions

    def __iter__(self) -> Iterator[tuple[ModelInputs, Sample]]:
        given = self.given
        if isinstance(given, (str, os.PathLike, Dataset, DataLoader)) or changed(self.options):
            given = CalibrationData.of(given, self.inputs, self.options, "data")
        if isinstance(given, CalibrationData):
            for sample, read in zip(given.source, given, strict=True):
                for call in samples([read], self.inputs):
                    yield call, sample
        else:
            yield from without_labels(samples(given, self.inputs))

    def __length_hint__(self) -> int:
        return length_hint(self.given)


def without_labels(calls: Iterable[ModelInputs]) -> Iterator[tuple[ModelInputs, Sample]]:
    """Yield each call with a sample that has the call's arrays and no label."""
    for number, call in enumerate(calls):
        yield call, Sample(tuple(tensor.detach().numpy() for tensor in call.tensors), None, f"sample {number}")


def compiled(both: Twins, asked: Session) -> Any:
    """Export and compile the quantized module of ``both``, with the options of ``asked``. Return the compiled model.

    Raises InvalidModelError where nothing in the module is quantized, with the reasons of its operators.
    """
    with suppressed(), step("Exporting the quantized model"):
        program = lifted(both.quantized, both.inputs) or export(both.quantized, both.inputs, both.name)
    request = Request(
        model=program,
        example_inputs=both.inputs.args,
        example_kwargs=both.inputs.kwargs,
        options=asked.request.options,
        delegation=asked.request.delegation,
        name=both.name,
    )
    if any(is_quantize(node) for node in both.quantized.graph.nodes):
        return asked.compile_module(request.for_figures())
    given = [(call.args, call.kwargs) if call.kwargs else call.args for call in asked.samples]
    return asked.compile_module(dataclasses.replace(request, calibration=given))  # which refuses it with its reasons


def lanes(both: Twins, program: Any) -> Lanes:
    """Return a quantized module and its float twin, prepared to run samples. ``program`` is the compiled model. Its
    partitions are compiled again so that their inner tensors can be read."""
    with suppressed(), step("Keeping all tensors"):
        return Lanes.of(both, observed(program.partitions, both.quantized, both.inputs, program.target))


def report(asked: Session, data: Any, metric: Metric | None = None) -> AccuracyReport:
    """Return the accuracy by layer over ``data``, or over the calibration samples if it is None. Raises
    InvalidOptionError if there are no samples."""
    both = asked.twins()
    program = compiled(both, asked)
    ready = lanes(both, program)
    calls: Any = list(without_labels(asked.samples)) if data is None else None
    if calls is None:
        calls = Labelled(data, asked.source.inputs, asked.request.data)
    pictures: list[ModelInputs] = []
    kept = _keeping(calls, pictures, MOST_PICTURES)
    found = analysed(ready, kept, asked.request.options.target, length_hint(calls), metric)
    if not found.samples:
        raise InvalidOptionError("data: there are no samples. Pass at least one tuple of the model's arguments.")
    found = dataclasses.replace(found, has_float_weights=not asked.is_quantized)
    model = asked.request.model
    if finds_boxes(model):
        with step("Comparing boxes"):
            heads = [(Run(both.real).of(call), program.run(*call.args)) for call in pictures]
            found = dataclasses.replace(found, boxes=boxes_agreement(model, heads))
    return found


def _keeping(calls: Any, kept: list[ModelInputs], most: int) -> Iterator[tuple[ModelInputs, Sample]]:
    """Yield the calls, and append the first ``most`` of them to ``kept``: ``calls`` may be an iterator, which can be
    read only once."""
    for call, sample in calls:
        if len(kept) < most:
            kept.append(call)
        yield call, sample


def repair(asked: Session, data: Any, target_db: float, journal: Path | None) -> RepairReport:
    """Search for quantization options that reach a signal-to-noise ratio of ``target_db`` on ``data``, or on the
    calibration samples if it is None. Return the report of the search. Raises InvalidModelError for a model that is
    quantized already."""

    if asked.is_quantized:
        raise InvalidModelError(
            f"'{asked.request.name}' is quantized already, so that no measure changes it. Pass the float model."
        )
    calls = list(asked.samples)
    if data is not None:
        calls = [call for call, _ in Labelled(data, asked.source.inputs, asked.request.data)]
    return repaired(asked, calls, target_db, journal)


def cost(program: Any) -> Cost:
    """Return the cost of a compiled model from its summary and its file."""
    summary = program.report
    return Cost(
        summary.cycles, summary.milliseconds, summary.band, summary.sram_bytes, len(program.buffer), summary.cpu_macs
    )
