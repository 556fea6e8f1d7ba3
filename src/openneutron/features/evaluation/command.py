# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron evaluate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from openneutron.api.evaluate import evaluated, inputs
from openneutron.api.load import LoadedFile, load
from openneutron.cli import output
from openneutron.cli.compile import compiled_with_model, note_on_calibration
from openneutron.cli.model_source import ModelFile
from openneutron.cli.options import OF_CONVERTERS, GivenModel, takes_a_model
from openneutron.errors import InvalidOptionError
from openneutron.features.evaluation import processes
from openneutron.features.evaluation.metrics import check
from openneutron.features.evaluation.results import evaluation_table
from openneutron.features.evaluation.samples import DataSet

if TYPE_CHECKING:
    from openneutron.api.litert import CompiledLiteRTModel
    from openneutron.api.pytorch import CompiledModel

WITHOUT = ("io_dtype", "check", "profile", *OF_CONVERTERS, "any_runtime")
"""The compile parameters that an evaluation leaves at their defaults. The simulated NPU runs only programs that
OpenNeutron compiled."""

Metric = Annotated[
    str | None,
    typer.Option(
        metavar="METRIC",
        help="top1, top5, mse, map or file.py:function; default: top1 for classes, mse for arrays, map for boxes, none without labels.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Processes; default: one for each core, or fewer for little work."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Evaluate on the workers of this Dask scheduler, such as tcp://localhost:8786."
    ),
]


@takes_a_model(without=WITHOUT, evaluates=True)
def evaluate_model(
    *,
    asked: GivenModel,
    metric: Metric = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Measure the accuracy on labelled data: in float, in int8 on the CPU, and on the simulated NPU.

    The table has the metric and the time of each side, the agreement of the sides with each other, and the classes that
    the NPU finds least. int8 on the CPU is the quantized model in PyTorch's arithmetic, of a .tflite in LiteRT's interpreter;
    an int8 .tflite has no float side, and a compiled file (.pte, .tflite) the side of the NPU alone. Without labels the sides are compared with each other alone.

    All processor cores evaluate, or the workers of a Dask scheduler with --scheduler. The results do not depend on their number.
    An interrupt (Ctrl-C) shows the results of the samples so far.

    The data of a detector are a folder with COCO's annotations, their .json, or Ultralytics' data.yaml. map is the mean average
    precision of its boxes (COCO's AP and AP50).

    A function of a metric gets the outputs, a tuple of arrays, and the sample, with arrays, label and name; it returns a number,
    whose mean over all samples is the metric. --preprocess and --sample-rate hold for --data and --calibration.
    """
    if asked.evaluated.path is None:
        raise InvalidOptionError(
            "--data: it is missing; evaluate needs a data set. Give a folder, a .npz file or file.py:loader."
        )
    check(metric)
    if scheduler is not None:
        processes.dask_required()
    with output.Steps(quiet) as steps:
        program: CompiledModel | CompiledLiteRTModel | LoadedFile
        if isinstance(asked.source, ModelFile) and asked.source.is_compiled:
            program, model = load(asked.source.path), None
        else:
            program, model, _ = compiled_with_model(asked, steps)
        found = evaluated(program, data_set(asked, program), model, metric, workers, scheduler, steps, True)
    output.show(evaluation_table(found), "evaluate", found.to_dict(), as_json)
    if not quiet and (note := note_on_calibration(asked)):
        output.note(note)
    if not found.complete:
        raise KeyboardInterrupt


def data_set(asked: GivenModel, program: CompiledModel | CompiledLiteRTModel | LoadedFile) -> DataSet:
    """Return the data set of ``--data``, for the inputs of a program."""
    given = asked.evaluated
    assert given.path is not None
    options = given.options
    assert not callable(options.preprocess)
    return DataSet(given.path, inputs(program), options.preprocess, options.sample_rate, options.calibration_samples)
