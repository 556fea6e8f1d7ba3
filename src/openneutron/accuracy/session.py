# SPDX-License-Identifier: BSD-3-Clause
"""One model with its samples and options: quantized, compiled and compared, in one way or in many."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import openneutron.api.pytorch as compiling
from openneutron.accuracy.analysis import analysed
from openneutron.accuracy.lanes import Lanes
from openneutron.accuracy.npu_tensors import observed
from openneutron.accuracy.twins import Twins, twins
from openneutron.errors import InvalidOptionError
from openneutron.options import CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, aten_graph, export, samples
from openneutron.pytorch.source.lifting import lifted
from openneutron.report.accuracy import AccuracyReport
from openneutron.third_party import suppressed
from openneutron.timings import step


@dataclass(frozen=True, eq=False)
class Session:
    """A float model with its calibration samples and the options of its compile."""

    model: Any
    example_inputs: Any
    example_kwargs: Mapping[str, Any] | None
    calibration: Any
    options: CompileOptions
    quantization: QuantizationOptions
    delegation: DelegationOptions
    name: str

    @cached_property
    def source(self) -> AtenGraph:
        """Return the model's graph."""
        layout = self.quantization.channels_last
        with suppressed(), step("Exporting"):
            return aten_graph(self.model, self.example_inputs, self.example_kwargs, layout, self.name)

    @cached_property
    def calls(self) -> list[ModelInputs]:
        """Return the calibration samples."""
        return list(samples(self.calibration, self.source.inputs))

    def twins(self) -> Twins:
        """Return the model quantized, beside its float twin."""
        quantizer = NeutronQuantizer(NeutronTargetSpec(self.options.target))
        quantizer.keep_float(*self.quantization.keep_float)
        total = len(self.calibration) if isinstance(self.calibration, Sized) else 0
        return twins(self.source, quantizer, self.calibration, self.name, total)


def compiled(both: Twins, asked: Session) -> compiling.CompiledModel:
    """Return the compiled program of a quantized module."""
    with suppressed(), step("Exporting the quantized model"):
        program = lifted(both.quantized, both.inputs) or export(both.quantized, both.inputs, both.name)
    delegation = dataclasses.replace(asked.delegation, must_delegate=False, any_runtime=True)
    return compiling.compile_module(
        program,
        both.inputs.args,
        both.inputs.kwargs,
        None,
        asked.options,
        QuantizationOptions(),
        delegation,
        both.name,
    )


def lanes(both: Twins, program: compiling.CompiledModel) -> Lanes:
    """Return twins ready to be compared, with the tensors inside the delegate calls of their program."""
    with suppressed(), step("Keeping all tensors"):
        return Lanes.of(both, observed(program.partitions, both.quantized, both.inputs, program.target))


def report(asked: Session, data: Iterable[Any] | None) -> AccuracyReport:
    """Return the accuracy by layer over ``data``, or over the calibration samples."""
    source = asked.source
    both = asked.twins()
    given = asked.calibration if data is None else data
    total = len(given) if isinstance(given, Sized) else 0
    ready = lanes(both, compiled(both, asked))
    calls = samples(given, source.inputs)
    found = analysed(ready, calls, asked.options.target, total)
    if not found.samples:
        raise InvalidOptionError("data: there are no samples. Pass at least one tuple of the model's arguments.")
    return found
