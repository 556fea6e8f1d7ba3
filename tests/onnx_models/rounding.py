# SPDX-License-Identifier: BSD-3-Clause
"""Quantized files, run by kernels that round once, as onnxruntime does, in the place of LiteRT's two roundings.

    python -m tests.onnx_models.rounding [--form int8] [--kinds] [--folder FOLDER] [NAME ...]

The command compiles the runtime anew with another text of the few functions that round (``REPLACED``), and nothing else changed. A switch in this
library turns each kind of rounding on alone (``KINDS``). Prints for each network a row of Markdown: the part of the results that are within one step
of the graph as onnxruntime computes it as written, with LiteRT's roundings, and with one rounding, half to even; the part of onnxruntime's own results
where one of the first quantized values is one step larger; and ratios to the float network in dB, of onnxruntime, of both roundings, and of the moved values.
``--kinds`` prints instead the part and the ratio where each kind alone rounds once, and where all others do.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
import torch

import openneutron
from openneutron.compiler.select import tables
from openneutron.device import simulator
from openneutron.ir import QuantParams
from openneutron.options import DelegationOptions
from tests.onnx_models.quantized import FORMS, OTHERS, OWN, exported, quantized, ratio, stacked, step_of
from tests.onnx_models.quantized_operators import with_values

Array = np.ndarray[Any, Any]

ROOT = Path(__file__).parents[2]

KINDS = {"convolutions": 1, "sums": 2, "means": 4, "products": 8, "softmax": 16}
"""The bits of the switch: convolutions and layers; sums and products of elements; means and average pools; products of two matrices
and all other calls of ``neutron_requantize``; softmax."""

TABLES = "tables"
"""The kind that the compiler rounds: functions of one value, and changes of scale."""

_ONCE = """
/* x * multiplier * 2^(shift - 31), rounded once, half to even. */
extern uint32_t neutronRoundsOnce;
static inline int32_t neutron_once(int64_t x, int32_t multiplier, int32_t shift) {
    const int32_t right = 31 - shift;
    if (right > 62) return 0;
    if (right < 1) return (int32_t)(x * multiplier);
    const int64_t product = x * multiplier, unit = INT64_C(1) << right, rest = product & (unit - 1);
    const int64_t floor = product >> right, rounded = floor + (rest > unit / 2 || (rest == unit / 2 && (floor & 1)));
    return rounded > INT32_MAX ? INT32_MAX : rounded < INT32_MIN ? INT32_MIN : (int32_t)rounded;
}
"""

REPLACED = (
    ("kernel.h", "/* x * multiplier * 2^(shift - 31), rounded as LiteRT's", f"{_ONCE}/* rounded as LiteRT's"),
    (
        "kernel.h",
        "    const int32_t left = shift > 0 ? shift : 0;\n    const int32_t right",
        "    if (neutronRoundsOnce & 8) return neutron_once(x, multiplier, shift);\n"
        "    const int32_t left = shift > 0 ? shift : 0;\n    const int32_t right",
    ),
    (
        "conv_2d/convolution.h",
        "const int32_t sound = neutron_sound_shift(shift), left = sound > 0 ? sound : 0;",
        "const int32_t sound = neutron_sound_shift(shift), left = sound > 0 ? sound : 0;\n"
        "    if (neutronRoundsOnce & 1) return neutron_once(accumulator, multiplier, sound);",
    ),
    (
        "two_operands.h",
        "    const int32_t rescaled = neutron_shift_rounding(neutron_high_mul(shifted, by->multiplier), by->rounding);",
        "    const int32_t rescaled = neutronRoundsOnce & 2\n"
        "        ? neutron_once(x, by->multiplier, by->left - by->rounding.amount)\n"
        "        : neutron_shift_rounding(neutron_high_mul(shifted, by->multiplier), by->rounding);",
    ),
    (
        "mean/mean_s8.c",
        "neutron_requantize(sum, p->output_multiplier, p->output_shift);",
        "neutronRoundsOnce & 4 ? neutron_once(sum, p->output_multiplier, p->output_shift)\n"
        "            : neutron_requantize(sum, p->output_multiplier, p->output_shift);",
    ),
    (
        "average_pool_2d/average_pool_2d_s8.c",
        "stored[i] = (int16_t)neutron_bound(nudged / count,",
        "const int32_t even = (int32_t)__builtin_rint((double)sums[i] / count);\n"
        "        stored[i] = (int16_t)neutron_bound(neutronRoundsOnce & 4 ? even : nudged / count,",
    ),
    (
        "softmax.h",
        "    return (uint8_t)(neutron_bound(result, 0, 255) + INT8_MIN);",
        "    if (neutronRoundsOnce & 16) {\n"
        "        const double exact = __builtin_ldexp((double)by.scale * exponential, -31 - by.exponent);\n"
        "        return (uint8_t)(neutron_bound((int32_t)__builtin_rint(exact), 0, 255) + INT8_MIN);\n"
        "    }\n"
        "    return (uint8_t)(neutron_bound(result, 0, 255) + INT8_MIN);",
    ),
    (
        "softmax.h",
        "    return (uint8_t)neutron_bound(result + scale->zero_point, INT8_MIN, INT8_MAX);",
        "    if (neutronRoundsOnce & 16) {\n"
        "        const double exact = __builtin_ldexp((double)by.scale * exponential, -31 - by.exponent);\n"
        "        const double steps = __builtin_rint(__builtin_ldexp(exact * scale->multiplier, scale->shift - 31));\n"
        "        return (uint8_t)neutron_bound((int32_t)steps + scale->zero_point, INT8_MIN, INT8_MAX);\n"
        "    }\n"
        "    return (uint8_t)neutron_bound(result + scale->zero_point, INT8_MIN, INT8_MAX);",
    ),
)  # fmt: skip
"""A file below runtime/kernels, a text that occurs once in it, and the text in its place."""


def built(folder: Path) -> Path:
    """Return the host library with the switch, compiled in a folder without kernels for a processor's extensions."""
    library = folder / "build" / "libneutron.so"
    if library.exists():
        return library
    shutil.copytree(ROOT / "runtime", folder / "runtime", dirs_exist_ok=True)
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    for name, old, new in REPLACED:
        path = folder / "runtime" / "kernels" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} has {text.count(old)} times: {old}"
        path.write_text(text.replace(old, new))
    switch = "#include <stdint.h>\nextern uint32_t neutronRoundsOnce;\nuint32_t neutronRoundsOnce = 0;\n"
    (folder / "runtime" / "kernels" / "rounds_once.c").write_text(switch)
    configure = ("cmake", "-S", str(folder), "-B", str(library.parent), "-DNEUTRON_PORTABLE_ONLY=ON")
    for command in (configure, ("cmake", "--build", str(library.parent), "--target", "neutron")):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return library


def _once(x: Array, multiplier: int, shift: int) -> Array:
    """Return x * multiplier * 2^(shift - 31) as integers, rounded once, half to even; exact for products below 2^53."""
    return np.asarray(np.rint(np.ldexp((x * multiplier).astype(np.float64), shift - 31)), np.int64)


def _table(function: Callable[[Array], Array]) -> Callable[[QuantParams, QuantParams, Any], Array]:
    def fill(source: QuantParams, result: QuantParams, attrs: Any) -> Array:
        real = np.float32(source.scale) * (tables.STORED - source.zero_point).astype(np.float32)
        with np.errstate(divide="ignore"):
            steps = np.rint(function(real) / np.float32(result.scale)) + result.zero_point
        return np.asarray(np.clip(steps, -128, 127), np.int8)

    return fill


FUNCTIONS = {
    "hard_swish": _table(lambda x: x * np.clip(x / np.float32(6) + np.float32(0.5), 0, 1)),
    "sqrt": _table(lambda x: np.sqrt(np.maximum(x, 0))),
    "rsqrt": _table(lambda x: 1 / np.sqrt(np.maximum(x, 0))),
}
"""The functions whose tables LiteRT computes in fixed point, or truncates."""


@contextmanager
def of_one_rounding() -> Iterator[None]:
    with (
        mock.patch.object(tables, "requantize", _once),
        mock.patch.object(tables, "rounded_away", np.rint),
        mock.patch.object(tables, "TABLES", {**tables.TABLES, **FUNCTIONS}),
    ):
        yield


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


def switch() -> ctypes.c_uint32:
    """Return the switch of the library that is loaded."""
    return ctypes.c_uint32.in_dll(simulator.library(), "neutronRoundsOnce")


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
                lines = of_kinds(name, given.form, folder) if given.kinds else [row(name, given.form, folder)]
                for line in lines:
                    print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
