# SPDX-License-Identifier: BSD-3-Clause
"""``nxp_executor_runner``: run a ``.pte`` on files of raw tensors, with the command line of ExecuTorch's example of
that name.

Each file of ``--dataset`` is the single input of one run. Each folder of ``--inputs`` (comma-separated) holds the
inputs of one run; where ``--inputs`` names files, they are the inputs of a single run. The outputs of a run are written
to ``OUTPUT/<file or folder>/0000.bin`` and so on, those of a single run on files to ``OUTPUT/0000.bin``. A float input
may be given as bytes, one for each element.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device import files
from openneutron.device.third_party import needs_pytorch
from openneutron.errors import InvalidOptionError, OpenNeutronError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0, or 255 (the exit code of ExecuTorch's runner) after a message on standard
    error."""
    parser = argparse.ArgumentParser(prog="nxp_executor_runner", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", "-model", type=Path, required=True, help="The .pte.")
    parser.add_argument("--dataset", "-dataset", type=Path, help="A folder of files, each the input of one run.")
    parser.add_argument("--inputs", "-inputs", help="Folders with the inputs of one run each, or the files of one run.")
    parser.add_argument("--output", "-output", type=Path, default=Path("results"), help="Where outputs are written.")
    for name in ("firmware", "nsys", "nsys_config"):
        parser.add_argument(f"--{name}", f"-{name}", help="Taken, and not needed: the simulated NPU is a library.")
    given = parser.parse_args(arguments)
    try:
        _run(given)
    except OpenNeutronError as error:
        sys.stderr.write(f"error: {error}\n")
        return 255
    return 0


def _run(given: argparse.Namespace) -> None:
    if (given.dataset is None) == (given.inputs is None):
        raise InvalidOptionError("nxp_executor_runner: give either --dataset or --inputs.")
    path = files.existing(str(given.model))
    with needs_pytorch("Running a .pte takes"):
        from openneutron.pytorch.run.runner import Runner
    runner = Runner(path.name, path.read_bytes())
    tensors = [
        _Input(shape, np.dtype(str(dtype).removeprefix("torch.")), order)
        for (shape, dtype), order in zip(runner.inputs, runner.memory_orders, strict=True)
    ]
    for name, paths in _runs(given):
        if len(paths) != len(tensors):
            raise InvalidOptionError(
                f"nxp_executor_runner: '{name or given.inputs}' has {len(paths)} inputs; the model takes {len(tensors)}."
            )
        outputs = runner.run([tensor.read(path) for path, tensor in zip(paths, tensors, strict=True)])
        folder = given.output / name
        made = {folder / f"{place:04d}.bin": _bytes_of(output) for place, output in enumerate(outputs)}
        files.write(made, folder)


@dataclass(frozen=True, slots=True)
class _Input:
    """An input tensor of the program. ``order`` has the tensor's axes in memory order, outermost first."""

    shape: tuple[int, ...]
    dtype: np.dtype
    order: tuple[int, ...]

    def read(self, path: Path) -> np.ndarray:
        """Return the values in a file, in the shape of the input. The file has the values in memory order. A file for
        a float input may have one uint8 for each value. Raises InvalidOptionError where the file has another size."""
        data, count = path.read_bytes(), math.prod(self.shape)
        if len(data) == count and self.dtype == np.float32:
            values = np.frombuffer(data, np.uint8).astype(np.float32)
        elif len(data) == count * self.dtype.itemsize:
            values = np.frombuffer(data, self.dtype)
        else:
            raise InvalidOptionError(
                f"nxp_executor_runner: '{path}' has {len(data)} bytes; the model takes {self.dtype}{list(self.shape)}, which is "
                f"{count * self.dtype.itemsize}."
            )
        stored = values.reshape([self.shape[axis] for axis in self.order])
        return stored.transpose([self.order.index(axis) for axis in range(len(self.order))])


def _runs(given: argparse.Namespace) -> Iterator[tuple[str, list[Path]]]:
    """Yield for each run its name, which is the folder of its outputs, and its input files. A single run on files has
    an empty name."""
    if given.dataset is not None:
        if not given.dataset.is_dir():
            raise InvalidOptionError(f"--dataset: '{given.dataset}' is not a folder.")
        paths = sorted(path for path in given.dataset.iterdir() if path.is_file())
        if not paths:
            raise InvalidOptionError(f"--dataset: '{given.dataset}' has no file. Each file is the input of one run.")
        yield from ((path.name, [path]) for path in paths)
        return
    paths = [Path(name) for name in given.inputs.split(",")]
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise InvalidOptionError(f"--inputs: '{missing[0]}' does not exist.")
    if all(path.is_dir() for path in paths):
        yield from ((path.name, sorted(path.iterdir())) for path in paths)
    else:
        yield "", paths


def _bytes_of(output: Any) -> bytes:
    """Return an output's bytes in memory order."""
    array = np.asarray(output)
    outwards = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    return array.transpose(outwards).tobytes()
