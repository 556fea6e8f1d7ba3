# SPDX-License-Identifier: BSD-3-Clause
"""An accuracy session: one model with its samples and options, which is quantized, compiled and compared with float."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import length_hint
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from openneutron.device.data import Sample
from openneutron.device.third_party import suppressed
from openneutron.device.timings import step
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.accuracy.analysis import analysed
from openneutron.features.accuracy.boxes import boxes_agreement, finds_boxes
from openneutron.features.accuracy.lanes import Lanes
from openneutron.features.accuracy.npu_tensors import Twins, is_quantized, observed, of_quantized, twins
from openneutron.features.accuracy.report import AccuracyReport, Cost, RepairReport
from openneutron.features.evaluation.metrics import Metric
from openneutron.options import DataOptions, QuantizationOptions, Request, changed
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.quantizer.calibrate import MEASURES, quantizer_for
from openneutron.pytorch.source.calibration_data import Calibration, CalibrationData, samples
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, Run, aten_graph, export, lifted

MOST_PICTURES = 16
"""The largest number of pictures whose boxes are compared."""


@dataclass(frozen=True, eq=False)
class Session:
    """A float model with its calibration samples and the options of its compile."""

    request: Request
    compile_module: Callable[..., Any]
    """The function of ``openneutron.api.pytorch`` that compiles a module. It is passed in, since this package must not
    import the API."""

    @cached_property
    def source(self) -> AtenGraph:
        """Return the model's ATen graph, which is exported at the first access."""
        graph_of = aten_graph
        if changed(self.request.inputs):
            from openneutron.pytorch.frames.model import graph_of_frames

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
        """Return whether the model is quantized already. Raises InvalidOptionError for such a model if options of a
        quantization are set."""
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
    """Export and compile the quantized module of ``both``, with the options of ``asked``. Return the compiled model."""
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
    return asked.compile_module(request.for_figures())


def lanes(both: Twins, program: Any) -> Lanes:
    """Return lanes for twins. ``program`` is the compiled model, whose partitions are compiled again so that their
    inner tensors can be read."""
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
    found = analysed(ready, calls, asked.request.options.target, length_hint(calls), metric)
    found = dataclasses.replace(found, has_float_weights=not asked.is_quantized)
    model = asked.request.model
    if finds_boxes(model):
        with step("Comparing boxes"):
            pictures = [call for call, _ in calls][:MOST_PICTURES]
            heads = [(Run(both.real).of(call), program.run(*call.args)) for call in pictures]
            found = dataclasses.replace(found, boxes=boxes_agreement(model, heads))
    if not found.samples:
        raise InvalidOptionError("data: there are no samples. Pass at least one tuple of the model's arguments.")
    return found


def repair(asked: Session, data: Any, target_db: float, journal: Path | None) -> RepairReport:
    """Search measures that reach a target on ``data``, or on the calibration samples if it is None. Return the report
    of the search. Raises InvalidModelError for a model that is quantized already."""
    from openneutron.features.accuracy.repair import repaired

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
