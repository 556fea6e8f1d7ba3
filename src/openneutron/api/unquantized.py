# SPDX-License-Identifier: BSD-3-Clause
"""An exported model before its quantization."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Any

from torch.fx import GraphModule

from openneutron.device.timings import advance
from openneutron.errors import InvalidOptionError
from openneutron.features.report.outputs import OutputAccuracy
from openneutron.options import OPEN, DataOptions, QuantizationOptions, changed
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.measures import measures_in, quantized_with, quantizer_for
from openneutron.pytorch.source.calibration_data import Calibrated, Calibration
from openneutron.pytorch.source.exporting import SAMPLES, AtenGraph, FirstSamples, ModelInputs, restore


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantized module. ``real`` is its float twin, None without one, and ``samples`` are the first calibration samples."""

    module: GraphModule
    real: GraphModule | None = None
    samples: Sequence[ModelInputs] = ()

    def accuracy(self) -> tuple[OutputAccuracy, ...]:
        """Return the accuracy of the results on the samples; empty without a float twin."""
        if self.real is None or not self.samples:
            return ()
        from openneutron.features.accuracy.outputs import measured

        return measured(self.real, self.module, self.samples)


@dataclass(frozen=True, slots=True, eq=False)
class Unquantized:
    """An exported model, and all that its quantization depends on.

    ``converter`` is that of the partitions. ``samples`` are those of ``calibration``, ``total`` is their number; 0 where it is not known.
    """

    source: AtenGraph
    name: str
    target: NeutronTargetSpec
    samples: Iterable[ModelInputs] | None
    total: int
    options: QuantizationOptions
    calibration: Calibration | None
    converter: str = OPEN

    @classmethod
    def of(
        cls,
        source: AtenGraph,
        name: str,
        target: NeutronTargetSpec,
        calibration: Any,
        data: DataOptions,
        options: QuantizationOptions,
        converter: str = OPEN,
    ) -> Unquantized:
        """Return the model. The calibration samples are read when they are needed. Raises as ``Calibration.of`` does."""
        found = Calibration.of(calibration, source.inputs, data)
        return cls(source, name, target, found, 0 if found is None else length_hint(found), options, found, converter)

    @property
    def calibrated(self) -> Calibrated:
        """Return the facts of the calibration; its first sample is known once it was read."""
        return Calibrated() if self.calibration is None else self.calibration.calibrated

    @property
    def is_quantized(self) -> bool:
        """Return whether the model came with its quantization."""
        return any(is_quantize(node) for node in self.source.module.graph.nodes)

    def with_all_samples(self) -> Unquantized:
        """Return the same with the samples of its calibration in memory. Raises InvalidOptionError for an unusable one."""
        return self if self.samples is None or self.is_quantized else replace(self, samples=list(self.samples))

    def quantized(self) -> Quantized:
        """Return the quantized module: the exported module itself where it is not trained, unchanged where it is quantized
        already. It can be called once. There is a float twin where the model is calibrated.

        Raises InvalidOptionError where an option or the calibration data is unusable.
        """
        module, train_fn = self.source.module, self.options.train_fn
        measures, quantizer = (
            measures_in(self.options),
            quantizer_for(self.options, self.target, converter=self.converter),
        )
        if self.is_quantized:
            given = ("keep_float", "train_fn", "activations", "layer_activations", *measures)
            for option in [name for name in given if name in changed(self.options)]:
                raise InvalidOptionError(f"{option}: '{self.name}' is quantized already. Pass the float model.")
        elif train_fn is not None:
            # A copy: an exported module's parameters are the model's own.
            module = calibrate_and_quantize(copy.deepcopy(module), (), quantizer, is_qat=True, train_fn=train_fn)
        elif self.samples is None:
            raise InvalidOptionError(
                "calibration: there are no samples; int8 scales come from typical inputs. "
                "Pass calibration=[...], each item a tuple of the model's arguments (--calibration on the command line)."
            )
        else:
            total = self.total

            samples = FirstSamples(self.samples)
            real, module = quantized_with(
                module,
                quantizer,
                samples,
                self.options,
                lambda done: advance(done, total if done <= total else done + 1),
            )
            if self.source.state:
                restore(real, self.source.state)
                restore(module, self.source.state)
            return Quantized(module, real, samples.first(SAMPLES))
        if self.source.state:
            restore(module, self.source.state)
        return Quantized(module)
