# SPDX-License-Identifier: BSD-3-Clause
"""An exported model before its quantization."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sized
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from openneutron.errors import InvalidOptionError
from openneutron.options import QuantizationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, restore, samples
from openneutron.timings import advance


@dataclass(frozen=True, slots=True, eq=False)
class Unquantized:
    """An exported model, and all that its quantization depends on. ``total``: the number of samples; 0 where it is not known."""

    source: AtenGraph
    name: str
    target: NeutronTargetSpec
    samples: Iterable[ModelInputs] | None
    total: int
    options: QuantizationOptions

    @classmethod
    def of(
        cls,
        source: AtenGraph,
        name: str,
        target: NeutronTargetSpec,
        calibration: Iterable[Any] | None,
        options: QuantizationOptions,
    ) -> Unquantized:
        """Return the model. The calibration samples are read when they are needed."""
        found = None if calibration is None else samples(calibration, source.inputs)
        return cls(source, name, target, found, len(calibration) if isinstance(calibration, Sized) else 0, options)

    @property
    def is_quantized(self) -> bool:
        """Return whether the model came with its quantization."""
        return any(is_quantize(node) for node in self.source.module.graph.nodes)

    def with_all_samples(self) -> Unquantized:
        """Return the same with the samples of its calibration in memory. Raises InvalidOptionError for an unusable one."""
        return self if self.samples is None or self.is_quantized else replace(self, samples=list(self.samples))

    def quantized(self) -> GraphModule:
        """Return the quantized module: the exported module itself where it is not trained, unchanged where it is quantized
        already. It can be called once.

        Raises InvalidOptionError where an option or the calibration data is unusable.
        """
        module, train_fn, keep_float = self.source.module, self.options.train_fn, self.options.keep_float
        quantizer = NeutronQuantizer(self.target, is_qat=train_fn is not None).keep_float(*keep_float)
        if self.is_quantized:
            if keep_float or train_fn is not None:
                option = "keep_float" if keep_float else "train_fn"
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
            module = calibrate_and_quantize(
                module,
                self.samples,
                quantizer,
                after_sample=lambda done: advance(done, total if done <= total else done + 1),
            )
        restore(module, self.source.state)
        return module
