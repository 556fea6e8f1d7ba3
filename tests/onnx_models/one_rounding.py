# SPDX-License-Identifier: BSD-3-Clause
"""The runtime and the compiler's tables with one rounding, half to even, in the place of LiteRT's two.

``built`` compiles the runtime with another text of the few functions that round (``REPLACED``), and nothing else changed.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from openneutron.compiler.select import tables
from openneutron.device import simulator
from openneutron.ir import QuantParams

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


def switch() -> ctypes.c_uint32:
    """Return the switch of the library that is loaded."""
    return ctypes.c_uint32.in_dll(simulator.library(), "neutronRoundsOnce")
