# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron run``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron import files, pte
from openneutron.cli import output
from openneutron.cli.arrays import InputTensor, Runnable, describe, load_array, random_array
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.files import existing
from openneutron.mixed import FileSimulator
from openneutron.third_party import needs_pytorch, suppressed

SHOWN_VALUES = 8
"""An output of at most so many values is printed whole."""


@dataclass(frozen=True, slots=True)
class _LiteRTFile:
    """A ``.tflite``."""

    simulator: FileSimulator = field(repr=False)

    @property
    def inputs(self) -> list[InputTensor]:
        found = []
        for tensor in self.simulator.inputs:
            quantized = tensor.quant is not None and not tensor.quant.per_channel
            scale = tensor.quant.scale if tensor.quant is not None and quantized else None
            zero = tensor.quant.zero_point if tensor.quant is not None and quantized else 0
            found.append(InputTensor(tensor.name, tensor.shape, tensor.dtype.numpy, scale, zero))
        return found

    @property
    def where(self) -> str:
        count = len(self.simulator.nodes)
        if not count:
            return "no NeutronGraph in it: all of it ran on the CPU"
        return f"{count} NeutronGraph{'s' if count > 1 else ''} on the simulated NPU"

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.simulator.run(inputs)


def run_file(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A compiled .pte or .tflite; any other .tflite runs too.")
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", metavar="X.npy", help="An input; repeat it, in the model's order."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write output0.npy, output1.npy ... here.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--random", metavar="SEED", min=0, help="Run on random inputs, the same for a seed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came out as JSON.")] = False,
) -> None:
    """Run a compiled file on the simulated NPU.

    What stays on the CPU runs there: by ExecuTorch in a .pte, by LiteRT's reference kernels in a .tflite.
    """
    path = existing(file)
    with suppressed():
        runnable = _open(path)
        values = _inputs(path, runnable.inputs, inputs or [], seed)
        results = runnable.run(values)
    if folder is not None:
        files.write({folder / f"output{index}.npy": _npy(result) for index, result in enumerate(results)}, folder)
    if as_json:
        rows = [_row(result, index, folder) for index, result in enumerate(results)]
        output.show_json({"file": str(path), "npu": runnable.where, "outputs": rows})
    else:
        output.show(_table(path, runnable.where, results, folder))


def _open(path: Path) -> Runnable:
    if path.suffix == ".tflite":
        return _LiteRTFile(FileSimulator(path))
    if path.suffix == ".pte":
        data = path.read_bytes()
        ours = pte.payloads(data, path.name)
        with needs_pytorch("Running a .pte takes"):
            from openneutron.cli.pytorch_file import open_pte
        return open_pte(path, data, len(ours))
    raise InvalidModelError(f"'{path}' is neither a .pte nor a .tflite; those are what runs.")


def _inputs(path: Path, tensors: Sequence[InputTensor], given: Sequence[Path], seed: int | None) -> list[np.ndarray]:
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
        value = load_array(source)
        if (value.dtype, value.shape) != (tensor.dtype, tensor.shape):
            scale = (
                f" Its values are quantized: real = {tensor.scale:.6g} * (stored - {tensor.zero_point})."
                if tensor.scale is not None and value.dtype.kind == "f"
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
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("output", justify="right", style="cyan")
    for heading in ("type and shape", "smallest", "largest", "largest at"):
        table.add_column(heading, no_wrap=True)
    table.add_column("values" if folder is None else "file", overflow="fold")
    for index, array in enumerate(results):
        row = _row(array, index, folder)
        figures = [_figure(row[key]) if key in row else "" for key in ("min", "max", "argmax")]
        short = array.size <= SHOWN_VALUES
        values = (
            " ".join(_figure(value) for value in array.reshape(-1).tolist()) if short else "--output DIR keeps them"
        )
        table.add_row(str(index), describe(array.dtype, array.shape), *figures, row.get("file", values))
    return Group(Text.assemble((path.name, "bold"), f": {where}"), table)


def _figure(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
