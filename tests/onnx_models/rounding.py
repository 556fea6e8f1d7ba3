# SPDX-License-Identifier: BSD-3-Clause
"""Quantized files, run by kernels that round once, as onnxruntime does, in the place of LiteRT's two roundings.

    python -m tests.onnx_models.rounding [--form int8] [--kinds] [--folder FOLDER] [NAME ...]

The runtime is compiled anew for this (``one_rounding``). A switch in this library turns each kind of rounding on alone. Prints for each network a row
of Markdown: the part of the results that are within one step of the graph as onnxruntime computes it as written, with LiteRT's roundings, and with one
rounding, half to even; the part of onnxruntime's own results where one of the first quantized values is one step larger; and ratios to the float network in
dB, of onnxruntime, of both roundings, and of the moved values.
``--kinds`` prints instead the part and the ratio where each kind alone rounds once, and where all others do.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import torch

import openneutron
from openneutron.device import simulator
from openneutron.errors import OpenNeutronError
from openneutron.options import DelegationOptions
from tests.onnx_models.one_rounding import KINDS, TABLES, built, of_one_rounding, switch
from tests.onnx_models.quantized import FORMS, OTHERS, OWN, exported, quantized, ratio, stacked, step_of
from tests.onnx_models.quantized_operators import with_values

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Case:
    """A quantized network, its samples, and what onnxruntime computes for them from the graph as written."""

    path: Path
    given: list[tuple[torch.Tensor, ...]]
    samples: list[dict[str, Array]]
    floats: Array
    """The results of the float network."""
    written: Array
    step: float

    def within(self, found: Array) -> float:
        """Return the part of the results within one step of onnxruntime's."""
        return float((np.abs(found - self.written) <= 1.001 * self.step).mean())

    def decibels(self, found: Array) -> float:
        """Return the ratio of the results to their difference from the float network's."""
        return ratio(self.floats, found)


def _case(name: str, form: str, folder: Path) -> _Case:
    path, given = exported(name, folder)
    made, samples = quantized(path, form, given)
    floats, written = (_results(onnx.load(file), samples) for file in (path, made))
    return _Case(made, given, samples, floats, written, step_of(onnx.load(made), written))


def _results(model: onnx.ModelProto, samples: list[dict[str, Array]]) -> Array:
    """Return onnxruntime's first results of the graph as written."""
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), plain, providers=["CPUExecutionProvider"])
    return stacked(session.run(None, sample)[0] for sample in samples)


def nudged(case: _Case, count: int) -> Iterator[Array]:
    """Yield onnxruntime's results where one value, of all that the first QuantizeLinear gives, is one step larger.

    count: the number of values that are tried, which are random but none of the largest.
    """
    file = with_values(case.path, case.samples[0])
    end, random = file.ends[0], np.random.default_rng(0)
    integers = file.values[end.output[0]]
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    node = next(node for node in model.graph.node if node.output[0] == end.output[0])
    moved = onnx.helper.make_node("Add", [node.input[0], "nudge"], ["nudged"])
    model.graph.node.insert(list(model.graph.node).index(node), moved)
    node.input[0] = "nudged"
    model.graph.input.append(onnx.helper.make_tensor_value_info("nudge", onnx.TensorProto.FLOAT, integers.shape))
    for place in random.choice(np.flatnonzero(integers < integers.max()), count):
        nudge = np.zeros(integers.shape, np.float32)
        nudge.reshape(-1)[place] = file.held[end.input[1]].reshape(())
        yield _results(model, [{**sample, "nudge": nudge} for sample in case.samples])


def _ours(case: _Case, kinds: bool) -> Iterator[tuple[str, Array]]:
    """Yield the results with LiteRT's roundings, with one rounding, and with the other combinations of kinds, with their names."""
    options = DelegationOptions(must_delegate=False)
    usual = openneutron.compile(case.path, calibration=case.given, delegation=options)
    with of_one_rounding():
        once = openneutron.compile(case.path, calibration=case.given, delegation=options)
    every = sum(KINDS.values())
    shown = {"ours": (0, usual), "rounded once": (every, once)}
    if kinds:
        shown |= {f"{name} alone": (bit, usual) for name, bit in KINDS.items()} | {f"{TABLES} alone": (0, once)}
        shown |= {f"all but {name}": (every - bit, once) for name, bit in KINDS.items()}
        shown[f"all but {TABLES}"] = every, usual
    for name, (bits, program) in shown.items():
        switch().value = bits
        yield name, stacked(program.run(*sample)[0] for sample in case.given)
    switch().value = 0


NUDGES = 4
"""How many values are moved, one at a time."""


def row(name: str, form: str, folder: Path) -> str:
    """Return the row of a network in the table of docs/how-to/onnx.md."""
    case = _case(name, form, folder)
    ours, once = (found for _, found in _ours(case, False))
    moved = list(nudged(case, NUDGES))
    shares = sorted(map(case.within, moved))
    ratios = sorted(map(case.decibels, moved))
    cells = [*(f"{case.within(found):.1%}" for found in (ours, once)), f"{shares[0]:.1%} to {shares[-1]:.1%}"]
    cells += [f"{case.decibels(found):.1f}" for found in (case.written, ours, once)]
    return f"| {name} | {' | '.join(cells)} | {ratios[0]:.1f} to {ratios[-1]:.1f} |"


def of_kinds(name: str, form: str, folder: Path) -> Iterator[str]:
    """Yield a line for each kind of rounding of a network."""
    case = _case(name, form, folder)
    for column, found in _ours(case, True):
        yield f"{name} {column}: {case.within(found):.1%}, {case.decibels(found):.1f} dB"


def main(arguments: list[str]) -> int:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_models.rounding", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--form", choices=FORMS, default="int8")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--folder", type=Path, help="the folder that keeps the files and the library")
    given = parser.parse_args(arguments)
    importlib.import_module("transformers.models.auto.processing_auto")  # before timm's stand-in for torchvision
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = given.folder or Path(made)
        with mock.patch.object(simulator, "LIBRARY", built(folder / "rounding")):
            simulator.library()
            for name in given.names or (*OWN, *OTHERS):
                try:
                    lines = [*of_kinds(name, given.form, folder)] if given.kinds else [row(name, given.form, folder)]
                except OpenNeutronError as error:
                    lines = [f"{name}: refused: {error}"]
                print(*lines, sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
