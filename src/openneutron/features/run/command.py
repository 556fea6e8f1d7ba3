# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron run``: inputs from arrays and pictures, and what a detector finds in them."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.api.result import metadata_of
from openneutron.cli import output
from openneutron.cli.model_source import given_file
from openneutron.device import files, pte
from openneutron.device.data import PICTURES, SUFFIXES, ModelInput, picture_steps
from openneutron.device.data.preprocessing import Letterbox, Preprocess, Size, decoded
from openneutron.device.data.python_function import parsed
from openneutron.device.data.samples import UnusableError, describe, load_array
from openneutron.device.files import content, existing
from openneutron.device.forms import LITERT, PTE, form_of
from openneutron.device.mixed import FileSimulator
from openneutron.device.simulator import THREADS, shared_by
from openneutron.device.third_party import needs_pytorch, suppressed
from openneutron.device.timings import advance, measured, step
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.detection import Detections, Detector
from openneutron.features.detection.detections import drawn
from openneutron.features.evaluation.job import real
from openneutron.features.report.table import Column, Table, plural, right
from openneutron.ir import QuantParams


def is_picture(path: Path) -> bool:
    """Return whether a file is a picture by its name."""
    return SUFFIXES.get(path.suffix.lower()) == PICTURES


def loaded(path: Path, wanted: ModelInput, stated: str, detector: Detector | None) -> np.ndarray:
    """Return the model's input for a picture, after the preprocessing that the compiled file states. For a detector, the picture is fitted into
    the input's size with borders (letterbox).

    Raises InvalidOptionError if the picture can't be read, if it has another size, or if the preprocessing is a Python function.
    """
    option = f"--input {path}"
    if parsed(stated) is not None:
        raise InvalidOptionError(
            f"{option}: the file was calibrated on data after the function {stated}, which it does not have. Give the function's result "
            "as a .npy file."
        )
    steps = Preprocess.parse(stated, option)
    if detector is not None:
        steps = replace(steps, resize=None, crop=None, letterbox=Size(detector.height, detector.width))
    try:
        return picture_steps(steps, wanted, option)(decoded(existing(str(path))))
    except UnusableError as error:
        raise InvalidOptionError(f"{option}: {error}. Give a picture of this size, or a .npy file.") from error
    except InvalidModelError as error:  # the file does not exist
        raise InvalidOptionError(f"--input: {error}") from error


@dataclass(frozen=True, slots=True)
class Found:
    """The objects that a detector found in a picture."""

    detector: Detector
    picture: Path
    detections: Detections = field(repr=False)

    @classmethod
    def of(cls, file: str, detector: Detector, picture: Path, outputs: Sequence[np.ndarray]) -> Found:
        """Return the objects in the outputs of a run. Raises InvalidModelError if the outputs do not have the form that the file's metadata
        state."""
        try:
            found = detector.detections(outputs)
        except InvalidModelError as error:
            raise InvalidModelError(f"'{file}': {error}") from error
        width, height = decoded(picture).size
        place = Letterbox.of(height, width, detector.height, detector.width)
        return cls(detector, picture, found.in_picture(height, width, place))

    def plot(self, path: Path) -> bytes:
        """Return the picture with the objects drawn into it, in the format given by the suffix of ``path``."""
        stream = io.BytesIO()
        made = drawn(decoded(self.picture), self.detections, self.detector.names)
        made.save(stream, {".jpg": "jpeg"}.get(path.suffix.lower(), path.suffix.lower().removeprefix(".")))
        return stream.getvalue()

    def rows(self) -> list[dict[str, Any]]:
        """Return the objects as data: class, score, the box in pixels of the picture, and the keypoints if the
        detector has any. A box is x1, y1, x2, y2; a rotated box is x and y of its centre, width, height and angle."""
        found = self.detections
        made = []
        for place in range(len(found)):
            number = int(found.classes[place])
            row = {
                "class": self.detector.names.get(number, str(number)),
                "score": round(float(found.scores[place]), 4),
                "box": [round(value, 2) for value in found.boxes[place].tolist()],
            }
            if found.keypoints is not None:
                row["points"] = [[round(value, 2) for value in point] for point in found.keypoints[place].tolist()]
            made.append(row)
        return made

    def table(self) -> Table:
        """Return the objects as a table."""
        rows = self.rows()
        names = ("x", "y", "width", "height", "angle") if self.detections.is_rotated else ("x1", "y1", "x2", "y2")
        columns = [
            right("object", [item["class"] for item in rows], style="cyan"),
            right("score", [f"{item['score']:.2f}" for item in rows]),
        ]
        for place, name in enumerate(names):
            columns.append(right(name, [f"{item['box'][place]:.{2 if name == 'angle' else 0}f}" for item in rows]))
        return Table(tuple(columns))


SHOWN_VALUES = 8
"""An output with at most this number of values is printed whole."""


INDICES = 10
"""The bound of random integers of 32 and 64 bits. Such inputs are usually counts or indices of a table, and a table
seldom has fewer entries."""


DRAWN_BYTES = 8
"""The bytes of a random value while it is drawn: NumPy draws floats as float64 and converts them afterwards."""


def _memory() -> int:
    """Return the computer's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def random_array(
    generator: np.random.Generator, dtype: np.dtype, shape: Sequence[int], below: int | None = None
) -> np.ndarray:
    """Return random values. Integers of 8 and 16 bits have the full range of their type. Integers of 32 and 64 bits
    are at least 0 and lower than ``below`` (default: INDICES). Floats have a standard normal distribution. Booleans
    are False or True.

    Raises InvalidOptionError for other types, for a negative extent, and for values that take more bytes than the
    computer's memory while they are drawn (DRAWN_BYTES).
    """
    size = math.prod(shape) * max(dtype.itemsize, DRAWN_BYTES)
    if min(shape, default=1) < 0 or size > _memory():
        why = (
            "an extent is negative"
            if min(shape, default=1) < 0
            else f"that takes {size:,} bytes of this computer's {_memory():,}"
        )
        raise InvalidOptionError(
            f"--random: there are no random values of {describe(dtype, shape)}: {why}. Give the input with --input."
        )
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" and dtype.itemsize >= 4:
        return generator.integers(0, INDICES if below is None else below, shape, dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    raise InvalidOptionError(f"--random: there are no random values of type {dtype}. Give the input with --input.")


@dataclass(frozen=True, slots=True)
class InputTensor:
    """An input of a file. ``quant`` is None if the input is not quantized, or not with one scale for the tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    quant: QuantParams | None = None
    below: int | None = None
    """The number of entries of the table if the integers are indices of one; the indices are lower than this."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A file that is ready to run. ``where`` states in words what runs on the NPU. ``etdump`` returns the ETDump of the
    runs; it is None unless they are traced."""

    inputs: Sequence[InputTensor]
    where: str
    run: Callable[[Sequence[np.ndarray]], Sequence[Any]] = field(repr=False)
    etdump: Callable[[], bytes] | None = field(default=None, repr=False)
    real: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = field(default=tuple, repr=False)
    """A function that returns the outputs of a run as real values: those of a ``.tflite`` may be quantized."""


Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--input", "-i", metavar="X.npy", help="An input: a .npy file or a picture; repeat it, in the model's order."
    ),
]
Seed = Annotated[
    int | None, typer.Option("--random", metavar="SEED", min=0, help="Run on random inputs, the same for a seed.")
]


def run_file(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A compiled .pte or .tflite, or - for one on standard input; any other .tflite runs too.",
        ),
    ],
    inputs: Inputs = None,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write output0.npy, output1.npy ... here.")
    ] = None,
    seed: Seed = None,
    stream: Annotated[
        list[Path] | None,
        typer.Option(
            "--stream",
            metavar="X.npy",
            help="The values of an input in several runs, one for each index of the first axis; repeat it, in the model's order. "
            "State lasts from run to run, and the outputs get such an axis too.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Threads that compute each kernel call together; the outputs do not depend on it. Default: {THREADS}, or 1.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the objects that a detector finds in the picture of --input: a .png, .jpg or .bmp. A detector is a file with "
            "Ultralytics' metadata.",
        ),
    ] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Run a compiled file on the simulated NPU.

    A picture (.png, .jpg, .jpeg, .bmp) becomes the input by the preprocessing that the file states. For a detector the objects
    in the picture are listed, in pixels of the picture.

    Operators on the CPU run in ExecuTorch for a .pte, in LiteRT's reference kernels for a .tflite.
    """
    path = given_file(file)
    pictured = next(filter(is_picture, inputs or []), None)
    detector = None if pictured is None and plot is None else detector_of(path)
    if plot is not None:
        _check_plot(plot, path, pictured, detector)
    with shared_by(threads), suppressed(), output.Steps(quiet, verbose) as steps, measured(steps):
        with step("Loading"):
            runnable = _open(path)
        if stream:
            results = _streamed(runnable, _frames(path, runnable.inputs, stream, bool(inputs) or seed is not None))
        else:
            values = given_inputs(path, runnable.inputs, inputs or [], seed)
            with step("Running"):
                results = [np.asarray(result) for result in runnable.run(values)]
        found = (
            None
            if detector is None or pictured is None
            else Found.of(path.name, detector, pictured, runnable.real(results))
        )
    if plot is not None and found is not None:
        files.write({plot: found.plot(plot)})
    if folder is not None:
        files.write({folder / f"output{index}.npy": _npy(result) for index, result in enumerate(results)}, folder)
    rows = [_row(result, index, folder) for index, result in enumerate(results)]
    data: dict[str, Any] = {"file": str(path), "npu": runnable.where, "outputs": rows}
    table = _table(path, runnable.where, results, folder)
    data["objects"] = None if found is None else found.rows()
    if found is not None:
        table = Group(table, "", found.table() if len(found.detections) else "No object in the picture.")
    output.show(table, "run", data, as_json)


def detector_of(path: Path) -> Detector | None:
    """Return the detector in a compiled file, described by the file's metadata; None if the file has no such metadata. Raises as ``Detector.of``
    does."""
    data = content(path)
    form = form_of(path)
    try:
        return Detector.of(metadata_of(data, path.name), form is LITERT)
    except InvalidModelError as error:
        raise InvalidModelError(f"'{path.name}': {error}") from error


def _check_plot(plot: Path, path: Path, pictured: Path | None, detector: Detector | None) -> None:
    if not is_picture(plot):
        raise InvalidOptionError(f"--plot: '{plot}' is no picture's name; it ends with .png, .jpg or .bmp.")
    if detector is None:
        raise InvalidOptionError(
            f"--plot: '{path.name}' has no metadata of a detector, which a file of Ultralytics has. Leave --plot out."
        )
    if pictured is None:
        raise InvalidOptionError("--plot: there is no picture to draw into. Give one with --input.")
    files.check(plot)


def _streamed(runnable: Runnable, frames: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return the outputs of consecutive runs, stacked along a new first axis. ``frames`` has the inputs of each run."""
    found: list[Sequence[Any]] = []
    with step("Running", len(frames)):
        for done, values in enumerate(frames, 1):
            found.append([np.array(result) for result in runnable.run(values)])
            advance(done, len(frames))
    return [np.stack(results) for results in zip(*found, strict=True)]


def _frames(
    path: Path, tensors: Sequence[InputTensor], given: Sequence[Path], has_others: bool
) -> list[list[np.ndarray]]:
    """Return the inputs of each run from the arrays of ``--stream``. Raises InvalidOptionError if other inputs are
    given too (``has_others``), if an input has no array, if the arrays have different numbers of runs or none, and
    where types or shapes differ from those of the file's inputs."""
    if has_others:
        raise InvalidOptionError("--stream: it makes the inputs; leave out --input and --random.")
    if len(given) != len(tensors):
        wanted = "; ".join(f"{index}: {tensor.name}" for index, tensor in enumerate(tensors))
        raise InvalidOptionError(
            f"'{path.name}' takes {plural(len(tensors), 'input')} ({wanted}); {len(given)} given. Give each with --stream X.npy, in "
            "this order."
        )
    arrays = [load_array(source) for source in given]
    for index, (tensor, source, array) in enumerate(zip(tensors, given, arrays, strict=True)):
        if (array.dtype, array.shape[1:]) != (tensor.dtype, tensor.shape) or array.ndim == 0:
            wanted = describe(tensor.dtype, tensor.shape)
            raise InvalidOptionError(
                f"--stream {source}: it is {describe(array.dtype, array.shape)}; input {index} ('{tensor.name}') of '{path.name}' is "
                f"{wanted}, and a stream has one axis more in front."
            )
    counts = {len(array) for array in arrays}
    if len(counts) != 1 or 0 in counts:
        said = " and ".join(str(len(array)) for array in arrays)
        raise InvalidOptionError(f"--stream: the inputs have {said} runs; all have the same number of runs, above 0.")
    return [[array[index] for array in arrays] for index in range(len(arrays[0]))]


def _open(path: Path) -> Runnable:
    form = form_of(path)
    if form is LITERT:
        return _open_tflite(path)
    if form is PTE:
        return open_pte(path)
    raise InvalidModelError(f"'{path}' is neither a .pte nor a .tflite; only these run.")


def _open_tflite(path: Path) -> Runnable:
    simulator = FileSimulator(path)

    def values(outputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return [real(tensor, output) for tensor, output in zip(simulator.outputs, outputs, strict=True)]

    where = _where(len(simulator.nodes), "NeutronGraph")
    return Runnable(tflite_inputs(simulator), where, simulator.run, real=values)


def tflite_inputs(simulator: FileSimulator) -> list[InputTensor]:
    """Return the inputs of a ``.tflite``."""
    return [
        InputTensor(
            tensor.name,
            tensor.shape,
            tensor.dtype.numpy,
            None if tensor.quant is None or tensor.quant.per_channel else tensor.quant,
        )
        for tensor in simulator.inputs
    ]


def open_pte(path: Path, traced: bool = False) -> Runnable:
    """Return a ``.pte`` ready to run in ExecuTorch's runtime, with its delegates on the simulated NPU. With
    ``traced``, its runs record an ETDump.

    Raises InvalidModelError where ExecuTorch rejects the file, and MissingToolError where a package of the PyTorch
    extra is not installed or the delegate can't be built.
    """
    data = path.read_bytes()
    where = _where(len(pte.payloads(data, path.name)), f"{pte.BACKEND_ID} delegate")
    with needs_pytorch("Running a .pte takes"):
        from openneutron.pytorch.run import method

        simple = None if traced else method.opened(data, path.name)
        if simple is None:
            return _open_with_bindings(path, data, where, traced)
    inputs = [
        InputTensor(f"argument {index}", tensor.shape, np.dtype(tensor.dtype), below=below)
        for index, (tensor, below) in enumerate(zip(simple.tensors, simple.table_sizes, strict=True))
    ]

    def run(values: Sequence[np.ndarray]) -> Sequence[Any]:
        results = simple.run(values)
        return results if results is not None else _open_with_bindings(path, data, where).run(values)

    return Runnable(inputs, where, run)


def _open_with_bindings(path: Path, data: bytes, where: str, traced: bool = False) -> Runnable:
    """Return a ``.pte`` ready to run in ExecuTorch's own Python bindings, which require torch."""
    from openneutron.pytorch.run.runner import Runner

    runner = Runner(path.name, data, traced)
    inputs = []
    for index, ((shape, dtype), below) in enumerate(zip(runner.inputs, runner.table_sizes, strict=True)):
        try:
            kind = np.dtype(str(dtype).removeprefix("torch."))
        except TypeError as error:
            raise InvalidModelError(
                f"'{path.name}': argument {index} is {dtype}, which NumPy has no type for. Run it with Runner.run."
            ) from error
        inputs.append(InputTensor(f"argument {index}", shape, kind, below=below))
    return Runnable(inputs, where, runner.run, runner.etdump if traced else None)


def _where(count: int, kind: str) -> str:
    if not count:
        return f"no {kind} in it: all of it ran on the CPU"
    return f"{plural(count, kind.split()[-1])} on the simulated NPU"


def given_inputs(
    path: Path, tensors: Sequence[InputTensor], given: Sequence[Path], seed: int | None
) -> list[np.ndarray]:
    """Return the arrays of ``--input``, or random arrays for a seed. A picture becomes an array by the preprocessing
    that the file states. Raises InvalidOptionError if inputs and a seed are given, and where the number, the types or
    the shapes of the inputs differ from those of the file."""
    wanted = "; ".join(
        f"{index}: {tensor.name} {describe(tensor.dtype, tensor.shape)}" for index, tensor in enumerate(tensors)
    )
    count = f"{len(tensors)} input{'s' if len(tensors) != 1 else ''}"
    if seed is not None:
        if given:
            raise InvalidOptionError("--random: it makes the inputs; leave out --input, or --random.")
        generator = np.random.default_rng(seed)
        return [random_array(generator, tensor.dtype, tensor.shape, tensor.below) for tensor in tensors]
    if len(given) != len(tensors):
        raise InvalidOptionError(
            f"'{path.name}' takes {count} ({wanted}); {len(given)} given. "
            "Give each with --input X.npy, in this order, or try --random SEED."
        )
    values = []
    for index, (tensor, source) in enumerate(zip(tensors, given, strict=True)):
        if is_picture(source):
            data = content(path)
            steps = "" if form_of(path) is LITERT else pte.stated(pte.methods(data, path.name), pte.PREPROCESSING)
            picture = ModelInput(tensor.shape, tensor.dtype, tensor.quant)
            values.append(loaded(source, picture, steps, detector_of(path)))
            continue
        value = load_array(source)
        if (value.dtype, value.shape) != (tensor.dtype, tensor.shape):
            scale = (
                f" Its values are quantized: real = {tensor.quant.scale:.6g} * (stored - {tensor.quant.zero_point})."
                if tensor.quant is not None and value.dtype.kind == "f"
                else ""
            )
            raise InvalidOptionError(
                f"--input {source}: it is {describe(value.dtype, value.shape)}; input {index} ('{tensor.name}') of "
                f"'{path.name}' is {describe(tensor.dtype, tensor.shape)}.{scale}"
            )
        values.append(value)
    return values


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _row(array: np.ndarray, index: int, folder: Path | None) -> dict[str, Any]:
    row: dict[str, Any] = {"index": index, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "biuf":
        row |= {"min": array.min().item(), "max": array.max().item(), "argmax": int(array.argmax())}
    if folder is not None:
        row["file"] = str(folder / f"output{index}.npy")
    return row


def _table(path: Path, where: str, results: Sequence[np.ndarray], folder: Path | None) -> RenderableType:
    last = Column("values" if folder is None else "file", wraps=True)
    columns = (
        Column("output", justify="right", style="cyan"), "type and shape", "smallest", "largest", "largest at", last
    )  # fmt: skip
    rows = []
    for index, array in enumerate(results):
        row = _row(array, index, folder)
        figures = [_figure(row[key]) if key in row else "" for key in ("min", "max", "argmax")]
        short = array.size <= SHOWN_VALUES
        values = (
            " ".join(_figure(value) for value in array.reshape(-1).tolist()) if short else "--output DIR keeps them"
        )
        rows.append((str(index), describe(array.dtype, array.shape), *figures, row.get("file", values)))
    return Group(Text.assemble((path.name, "bold"), f": {where}"), Table.of_rows(columns, rows, gap=4))


def _figure(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
