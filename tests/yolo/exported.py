# SPDX-License-Identifier: BSD-3-Clause
"""Compare the kernel calls of a YOLO object with those of the files that Ultralytics' own exporter makes of it.

    python -m tests.yolo.exported [--folder FOLDER] [--target imxrt700] [--size 64] [NAME...]

Each network has random weights (tests/support/random_yolo.py) and pictures of 64 by 64 pixels, or of another size. It is compiled from memory up to its raw results, and
from the exporter's ``.onnx`` and int8 ``.tflite``, which have the decoding of boxes in them. Prints the calls of each kernel; for the ``.onnx``
each call that the YOLO object does not have, in the order of the program, with its operator. For the ``.tflite``, with ``fold_quantize`` and without,
it prints how many more and fewer calls of each kernel there are, lookups and copies together: a QUANTIZE in front of a concatenation is a lookup that
writes the operand in its place, where the YOLO object has a copy or nothing. It also prints the modelled time. Copies have no part in the comparison of
the order: a concatenation whose operands are written in place has none.
"""

from __future__ import annotations

import argparse
import difflib
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import openneutron
from openneutron import CompileOptions, LoadingOptions
from openneutron.features.listing.command import programs
from openneutron.isa.listing import profile
from openneutron.litert.read import operator_name, unpack
from tests.support import ultralytics_alone
from tests.support.random_yolo import make_low_rank, pictures, with_boxes

NETWORKS = ("yolov8n", "yolo11n", "yolo26n")
SIZE = 64
COPY, LOOKUP = "copy_s8", "lookup_s8"

BOX = "0 0.5 0.5 0.5 0.5\n"
LABELS = {"segment": "0 0.2 0.2 0.8 0.2 0.8 0.8\n", "pose": BOX.strip() + 17 * " 0.5 0.5 2" + "\n"}
"""The labels of a picture by task, which the exporter reads without using them."""

Call = tuple[str, str]
"""The kernel and the operator of a call."""


def calls(program: Any, folder: Path, suffix: str = ".pte") -> list[Call]:
    """Return the calls of a compiled model's programs."""
    path = folder / f"compiled{suffix}"
    program.save(path)
    return [(cost.kernel, cost.name) for _, each in programs(path) for cost in profile(each)]


def changes(one: list[Call], other: list[Call]) -> tuple[list[Call], list[Call]]:
    """Return the calls that only the first list has in their order, and those that only the second has. Copies are left out."""
    one, other = ([call for call in each if call[0] != COPY] for each in (one, other))
    kernels = [[kernel for kernel, _ in each] for each in (one, other)]
    gone: list[Call] = []
    new: list[Call] = []
    for _, first, last, begin, end in (
        row for row in difflib.SequenceMatcher(None, *kernels, autojunk=False).get_opcodes() if row[0] != "equal"
    ):
        gone += one[first:last]
        new += other[begin:end]
    return gone, new


def rescales(path: Path) -> int:
    """Return how many QUANTIZE operators of a ``.tflite`` read and write int8."""
    model = unpack(path.read_bytes(), path.name)
    graph = model.subgraphs[0]
    kinds = [
        {graph.tensors[place].type for place in (*operator.inputs, *operator.outputs)}
        for operator in graph.operators
        if operator_name(model, operator) == "QUANTIZE"
    ]
    return sum(len(kind) == 1 for kind in kinds)


def moved(calls_of_one: list[Call]) -> Counter[str]:
    """Return how many calls of each kernel there are, with lookups and copies as one."""
    return Counter("lookup or copy" if kernel in (COPY, LOOKUP) else kernel for kernel, _ in calls_of_one)


def exports(name: str, folder: Path, size: int) -> tuple[Path, Path, Path]:
    """Return the checkpoint of a network, its ``.onnx`` and its int8 ``.tflite``. Those that the folder has are taken."""
    from ultralytics import YOLO  # type: ignore[import-not-found]

    checkpoint = folder / f"{name}.pt"
    files = checkpoint, folder / f"{name}.onnx", folder / f"{name}_int8.tflite"
    if all(file.exists() for file in files):
        return files
    torch.manual_seed(0)
    samples = pictures(8, size)
    model = YOLO(f"{name}.yaml")
    model.model = with_boxes(make_low_rank(model.model), samples).eval()
    model.save(checkpoint)
    for part in ("images", "labels"):
        (folder / "set" / part / "train").mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(samples):
        pixels = (sample[0].permute(1, 2, 0) * 255).byte().numpy()
        Image.fromarray(np.ascontiguousarray(pixels)).save(folder / f"set/images/train/{number}.png")
        (folder / f"set/labels/train/{number}.txt").write_text(LABELS.get(model.task, BOX))
    names = ", ".join(f"{number}: c{number}" for number in range(80))
    data = folder / "set.yaml"
    shape = "kpt_shape: [17, 3]\n" if model.task == "pose" else ""
    data.write_text(f"path: {folder / 'set'}\ntrain: images/train\nval: images/train\nnames: {{{names}}}\n{shape}")
    YOLO(checkpoint).export(format="onnx", imgsz=size)
    YOLO(checkpoint).export(format="litert", imgsz=size, int8=True, data=str(data), fraction=1.0)
    return files


def lines(name: str, folder: Path, target: str, size: int) -> Iterator[str]:
    """Yield the lines of a network."""
    checkpoint, onnx, litert = exports(name, folder, size)
    options, samples = CompileOptions(target=target), pictures(8, size)
    loading = LoadingOptions(input_shapes={"images": (1, 3, size, size)}, head="raw")
    file = openneutron.compile(litert, options=options)
    programs_of = {
        "YOLO": openneutron.compile(checkpoint, calibration=samples, loading=loading, options=options),
        ".onnx": openneutron.compile(onnx, calibration=samples, options=options),
        ".tflite": file,
        ".tflite, folded": file.recompile(fold_quantize=True),
    }
    found = {
        form: calls(program, folder, litert.suffix if "tflite" in form else ".pte")
        for form, program in programs_of.items()
    }
    for form, each in found.items():
        kernels = Counter(kernel for kernel, _ in each)
        counts = ", ".join(f"{count} {kernel}" for kernel, count in kernels.most_common())
        yield f"{name} {form}: {len(each)} calls, {programs_of[form].report.milliseconds:.2f} ms; {counts}"
    gone, new = changes(found["YOLO"], found[".onnx"])
    yield f"    .onnx lacks {len(gone)} calls; more: {', '.join(f'{kernel} {name}' for kernel, name in new)}"
    ours = moved(found["YOLO"])
    for form in (".tflite", ".tflite, folded"):
        theirs = moved(found[form])
        more, fewer = theirs - ours, ours - theirs
        yield (
            f"    {form}: more: {', '.join(f'{count} {kernel}' for kernel, count in more.items()) or 'none'}; "
            f"fewer: {', '.join(f'{count} {kernel}' for kernel, count in fewer.items()) or 'none'}"
        )
    yield f"    {rescales(litert)} QUANTIZE, {len(programs_of['.tflite, folded'].report.folded_quantize)} of them folded"


def main() -> None:
    """Compare the networks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.yolo.exported", description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--target", default="imxrt700")
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("names", nargs="*", default=NETWORKS)
    given = parser.parse_args()
    with ultralytics_alone.usable(), tempfile.TemporaryDirectory() as made:
        for name in given.names:
            for line in lines(name, (given.folder or Path(made)).resolve(), given.target, given.size):
                print(line, flush=True)


if __name__ == "__main__":
    main()
