# SPDX-License-Identifier: BSD-3-Clause
"""From a float ATen graph and sample inputs to a quantized one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.passes.fold_batch_norm import FoldBatchNorm
from openneutron.pytorch.quantizer.training import converted, prepare_training, set_training
from openneutron.pytorch.source.exporting import first_line
from openneutron.pytorch.source.inputs import ModelInputs


def calibrate_and_quantize(
    model: ExportedProgram | GraphModule,
    calibration_inputs: Iterable[tuple[Any, ...] | ModelInputs],
    quantizer: Quantizer,
    is_qat: bool = False,
    train_fn: Callable[[GraphModule], None] | None = None,
    after_sample: Callable[[int], None] | None = None,
) -> GraphModule:
    """The model with quantize and dequantize nodes, scales taken from the calibration inputs.

    ``calibration_inputs`` are tuples of the model's arguments. With ``is_qat`` fake quantization is inserted, ``train_fn``
    trains it in place (it gets the module in training mode; ``train`` and ``eval`` work on it), and calibration runs only where
    there is no ``train_fn``. ``after_sample`` is told the number of samples done. Raises InvalidOptionError where there is
    nothing to calibrate with, or ``is_qat`` is not the quantizer's.
    """
    if isinstance(quantizer, NeutronQuantizer) and quantizer.is_qat != is_qat:
        raise InvalidOptionError(
            f"is_qat: it is {is_qat}, and the quantizer's is {quantizer.is_qat}. Pass NeutronQuantizer(spec, is_qat={is_qat})."
        )
    if train_fn is not None and not is_qat:
        raise InvalidOptionError("train_fn: it is for training with quantization simulated. Pass is_qat=True too.")
    module = model.module(check_guards=False) if isinstance(model, ExportedProgram) else model
    assert isinstance(module, GraphModule)
    if is_qat:
        prepared = prepare_training(module, quantizer)
        if train_fn is not None:
            train_fn(set_training(prepared, True))
        else:
            calibrate(set_training(prepared, False), calibration_inputs, after_sample)
        return converted(prepared)
    if isinstance(quantizer, NeutronQuantizer):
        quantizer.begin(module)
    FoldBatchNorm()(module)
    prepared = prepare_pt2e(module, quantizer)
    calibrate(prepared, calibration_inputs, after_sample)
    return convert_pt2e(prepared)


def calibrate(
    prepared: GraphModule,
    calibration_inputs: Iterable[tuple[Any, ...] | ModelInputs],
    after_sample: Callable[[int], None] | None = None,
) -> None:
    """Run the prepared model on every sample. Raises InvalidOptionError without samples, or where the model can't run
    on one."""
    done = 0
    with torch.no_grad():
        for sample in calibration_inputs:
            try:
                _run(prepared, sample)
            except (OpenNeutronError, AssertionError):
                raise
            # An index outside a table, weights without values: the operators may raise anything.
            except Exception as error:
                raise InvalidOptionError(
                    f"calibration: the model can't be run on sample {done}: {first_line(error)} ({type(error).__name__}). "
                    "Pass inputs that the float model takes."
                ) from error
            done += 1
            if after_sample is not None:
                after_sample(done)
    if not done:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from at least one. "
            "Pass some typical inputs, each a tuple of the model's arguments."
        )


def _run(prepared: GraphModule, sample: Any) -> None:
    if isinstance(sample, ModelInputs):
        prepared(*sample.args, **sample.kwargs)
    else:
        prepared(*(sample if isinstance(sample, (tuple, list)) else (sample,)))
