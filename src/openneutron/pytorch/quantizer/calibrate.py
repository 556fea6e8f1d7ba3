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
    """Return the model with quantize and dequantize nodes.

    Args:
        model: The exported float model.
        calibration_inputs: Tuples of the model's arguments. The scales come from these inputs.
        quantizer: The quantizer, with the same ``is_qat``.
        is_qat: True inserts fake quantization for training.
        train_fn: A function that trains the module in place. The module is in training mode; ``train`` and ``eval``
            work on it. Calibration runs only without this function.
        after_sample: A function that is called with the number of finished samples.

    Returns:
        The quantized module, for ``torch.export.export``.

    Raises:
        InvalidOptionError: There is nothing to calibrate with, or ``is_qat`` differs from the quantizer's.

    >>> import torch
    >>> inputs = (torch.ones(1, 4),)
    >>> exported = torch.export.export(torch.nn.Linear(4, 2), inputs)
    >>> quantized = calibrate_and_quantize(exported, [inputs], NeutronQuantizer())
    >>> quantized(*inputs).shape
    torch.Size([1, 2])
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
