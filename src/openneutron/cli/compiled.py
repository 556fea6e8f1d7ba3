# SPDX-License-Identifier: BSD-3-Clause
"""MODEL compiled, for ``compile``, ``explain`` and ``pareto``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import openneutron
from openneutron.cli import output
from openneutron.cli.model_source import LiteRTFile
from openneutron.cli.options import GivenModel
from openneutron.third_party import needs_pytorch, suppressed

if TYPE_CHECKING:
    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel


def compiled(asked: GivenModel, steps: output.Steps, for_figures: bool = False) -> CompiledModel | CompiledLiteRTModel:
    """Return the compiled model.

    ``for_figures``: nothing of the model need run on the NPU, nor in ExecuTorch's runtime here, and without calibration
    data the example inputs calibrate it, since scales have no cost. Raises the errors of ``openneutron.compile``, and
    MissingToolError where a package of the PyTorch extra is not installed.
    """
    source, delegation = asked.source, asked.delegation
    if isinstance(source, LiteRTFile):
        delegation = dataclasses.replace(delegation, must_delegate=not for_figures)
        return openneutron.compile(source.path, options=asked.options, delegation=delegation, progress=steps)
    steps("Loading PyTorch", 0, 1)
    with suppressed():
        with needs_pytorch("PyTorch models take"):
            from openneutron.api.pytorch import analyse
            from openneutron.cli import pytorch_source
        loaded = pytorch_source.load(source, asked.weights)
        samples = [pytorch_source.as_sample(loaded.call)]
        if asked.calibration is not None or not for_figures:
            samples = pytorch_source.samples(source, loaded, asked.calibration, asked.weights)
        result: CompiledModel = (analyse if for_figures else openneutron.compile)(
            loaded.model,
            loaded.call.args,
            example_kwargs=loaded.call.kwargs,
            calibration=samples,
            options=asked.options,
            quantization=asked.quantization,
            delegation=delegation,
            progress=steps,
            name=str(source),
        )
        return result
