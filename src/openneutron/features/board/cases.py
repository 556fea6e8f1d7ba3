# SPDX-License-Identifier: BSD-3-Clause
"""The jobs with which a board's NPU is checked, and the header cases.h that describes them to runtime/board/board_check.c.

The values of a case are computed from a hash of their index, here and in the C program. The header has a checksum of each case's packed weights
and exact results. The C program stops if its own checksums differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from openneutron.device import neutron_jobs as jobs

VERSION = 1

RESCALE_N = 128
"""The number of results in a product of zeros (see ``Rescale``)."""

PACKED_SIGNED, PACKED, PLAIN_SIGNED, PLAIN, WITHOUT = 2, 1, -2, -1, 0
"""The kinds of jobs: the layout of the weights and the type of the left operand. ``WITHOUT`` is the kind of releases whose jobs do not state a
kind."""

K_INT8 = (
    16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 288, 320, 384, 432, 448, 512, 576, 640, 720, 768, 864, 896,
    960, 1024, 1152, 1280, 1536, 1728, 1920, 2048, 2304, 2560, 2624, 3072, 3456, 3584, 4096, 4608, 4864, 5120, 5632, 6144,
    6912, 7168, 8192, 9216, 9728, 10240, 10752, 11008, 12288, 13824, 14336, 16384,
)  # fmt: skip
"""The values of K (columns of the weights) that are checked with int8 weights: those of common convolutions and linear layers, and those that
llama-neutron names."""

INT4_CHANNELS = 128
"""N (rows of the weights) of cases with int4 weights. The second release needs a multiple of 128, which is also a whole number of blocks for any
K."""

K_INT4 = (64, *sorted(jobs.FIRMWARE_3_1_1.right | jobs.FIRMWARE_3_1_1.wrong))
"""The values of K that are checked with int4 weights: those that llama-neutron names. It has int4 weights in groups of 32."""


@dataclass(frozen=True, slots=True)
class Case:
    """A matrix product of an [m, k] and an [n, k] operand, with exact int32 results. ``kind`` is the layout of the
    weights and the type of the left operand. ``group`` is the number of columns in a group of int4 weights; 0 for
    int8 weights."""

    kind: int
    m: int
    k: int
    n: int
    group: int = 0

    @property
    def tiling(self) -> tuple[int, int]:
        """Return two numbers about the layout of packed weights: channels per core, and cores."""
        return jobs.tiling(self.k, self.group or None)[:2]


@dataclass(frozen=True, slots=True)
class Rescale:
    """A product of zeros, which shows how the NPU rounds: result i is the bias ``first + i * step``, multiplied by
    ``factor``. ``result_bytes`` is the size of a result. ``factor`` has the encoding of a job
    (``neutron_jobs.factor``)."""

    kind: int
    result_bytes: int
    zero_point: int
    factor: int
    first: int
    step: int

    @property
    def biases(self) -> NDArray[np.int64]:
        """Return the biases of all results."""
        return self.first + np.arange(RESCALE_N, dtype=np.int64) * self.step


def block(k: int) -> int:
    """Return the number of channels in a block of packed int8 weights with ``k`` columns."""
    channels, cores, _ = jobs.tiling(k)
    return channels * cores


FORMS = (
    Case(PACKED, 3, 128, 128),
    Case(PLAIN, 3, 128, 128),
    Case(WITHOUT, 3, 128, 128),
    Case(PACKED, 3, 128, 128, 32),
    Case(WITHOUT, 3, 128, 128, 32),
)
"""A small product for each form of a job that a release of the driver may have. Jobs without a kind run last."""


def cases() -> list[Case]:
    """Return the products whose results are compared with exact results."""
    made = [Case(PACKED_SIGNED, 3, k, block(k)) for k in K_INT8]
    made += [Case(PLAIN_SIGNED, 3, k, 16) for k in K_INT8]
    made += [Case(kind, 3, k, block(k)) for kind in (PACKED, PLAIN) for k in (64, 576, 1024, 4096, 8192)]
    made += [Case(PLAIN_SIGNED, 3, k, block(k)) for k in (64, 576, 1024)]
    made += [Case(PACKED_SIGNED, 1, 64, n) for n in (256, 384, 1024, 4096, 16384, 65408)]
    made += [Case(PLAIN_SIGNED, 1, 64, n) for n in (16, 32, 48, 1008, 65520)]
    rows = (1, 2, 4, 15, 16, 17, 64, 255, 1024, 2047, 2048)
    made += [Case(kind, m, 128, 128) for kind in (PACKED_SIGNED, PLAIN_SIGNED) for m in rows]
    made += [Case(PACKED, 3, k, INT4_CHANNELS, 32) for k in K_INT4]
    made += [Case(PACKED, 3, k, INT4_CHANNELS, group) for group in (64, 128) for k in (128, 1024, 4096)]
    return list(dict.fromkeys(made))


def rescales() -> list[Rescale]:
    """Return the products of zeros that show how the NPU rounds and saturates, and what it does with the zero point."""
    made = []
    for kind in (PACKED_SIGNED, PACKED, PLAIN):
        for size in (1, 4):
            made += [
                Rescale(kind, size, 0, jobs.factor(0.5), -64, 1),
                Rescale(kind, size, 0, jobs.factor(0.25), -258, 4),
                Rescale(kind, size, 0, jobs.factor(0.0123), -8000, 125),
                Rescale(kind, size, 7, jobs.factor(1.0), -64, 1),
                Rescale(kind, size, 7, jobs.factor(0.0311), -4100, 61),
            ]
        made.append(Rescale(kind, 1, 0, jobs.factor(1.0), -6400, 100))
        made.append(Rescale(kind, 4, 0, jobs.factor(16.0), -(10**9), 16_000_000))
    return made


TIMED = (
    Case(PACKED_SIGNED, 1, 64, 128),
    Case(PACKED_SIGNED, 1, 1024, 1024),
    Case(PACKED_SIGNED, 128, 512, 512),
    Case(PLAIN_SIGNED, 1, 1024, 1024),
    Case(PACKED_SIGNED, 16, 64, 128),
    Case(PACKED, 1, 1024, 1024, 32),
    Case(PACKED_SIGNED, 1, 2048, 2048),
    Case(PACKED_SIGNED, 1, 2048, 8192),
    Case(PACKED_SIGNED, 1, 4096, 4096),
    Case(PLAIN_SIGNED, 1, 4096, 4096),
    Case(PACKED, 1, 4096, 4096, 32),
    Case(PACKED_SIGNED, 64, 1024, 1024),
    Case(PACKED_SIGNED, 512, 1024, 1024),
    Case(PLAIN_SIGNED, 512, 1024, 1024),
    Case(PACKED, 512, 1024, 1024, 32),
    Case(PACKED_SIGNED, 2048, 1024, 1024),
    Case(PACKED_SIGNED, 2048, 2048, 2048),
    Case(PACKED_SIGNED, 2048, 64, 128),
    Case(PACKED_SIGNED, 196, 512, 512),
    Case(PACKED_SIGNED, 784, 256, 256),
)
"""The products whose time is measured, the fastest first."""
QUICK_TIMES = 5

_A, _WEIGHTS, _BIAS, _SCALES, _SIGNS = 1, 2, 3, 4, 5


def hashed(count: int, seed: int) -> NDArray[np.uint8]:
    """Return ``count`` pseudorandom bytes of a seed: those of the function ``byte_of`` in board_check.c."""
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(seed * 0x85EBCA77 & 0xFFFFFFFF)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x2C1B3C6D)
    x ^= x >> np.uint32(12)
    x *= np.uint32(0x297A2D39)
    x ^= x >> np.uint32(15)
    return (x >> np.uint32(24)).astype(np.uint8)


def weighted_sum(values: NDArray[np.generic]) -> int:
    """Return a checksum of values: the sum of value i times 2 i + 1, modulo 2**64."""
    words = values.reshape(-1).astype(np.uint64)
    return int((words * (np.arange(words.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1))).sum(dtype=np.uint64))


@dataclass(frozen=True, slots=True)
class Values:
    """The weights of a case as they are in memory, and the case's exact results."""

    packed: NDArray[np.uint8]
    results: NDArray[np.int32]


def values_of(case: Case, seed: int) -> Values:
    """Return the values of a case, equal to those that the C program computes."""
    m, k, n = case.m, case.k, case.n
    a = hashed(m * k, seed * 8 + _A).reshape(m, k)
    rows = a.view(np.int8) if abs(case.kind) == PACKED_SIGNED else a
    drawn = hashed(n * k, seed * 8 + _WEIGHTS).reshape(n, k)
    if case.group:
        weights, packed = _int4(case, (drawn >> 4).astype(np.uint8), seed)
    else:
        weights = np.maximum(drawn.view(np.int8), -127)
        packed = (jobs.pack_int8(weights) if case.kind > 0 else weights.reshape(-1)).view(np.uint8)
    bias = (hashed(n, seed * 8 + _BIAS).astype(np.int64) - 128) * 37
    exact = rows.astype(np.float64) @ weights.astype(np.float64).T + bias
    return Values(packed, exact.astype(np.int32))


def _int4(case: Case, nibbles: NDArray[np.uint8], seed: int) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Return the decoded int8 weights of an int4 case, and the packed int4 weights as they are in memory."""
    groups = case.k // case.group
    scale_bytes = hashed(case.n * groups, seed * 8 + _SCALES).reshape(case.n, groups).astype(np.int64)
    signs = (hashed(case.n * groups, seed * 8 + _SIGNS).reshape(case.n, groups) & 1).astype(np.int64)
    scales = (32 | scale_bytes & 31) * 2.0 ** -(2.0 + (scale_bytes >> 6))
    stored = np.where(nibbles < 8, nibbles.astype(np.int64), nibbles.astype(np.int64) - 16)
    negative = np.repeat(signs, case.group, axis=1) == 1
    decoded = jobs.decoded_weights((stored + negative).astype(np.int8), scales, case.group)
    # pack_int4 takes the weights before a negative scale turns them round.
    given = (np.where(negative, -stored - 1, stored) + 8).astype(np.uint8)
    halves = given[:, 0::2] | given[:, 1::2] << 4
    packed = jobs.pack_int4(halves, np.where(signs == 1, -1, 1).astype(np.float32), case.group)["weights"]
    return decoded, packed.view(np.uint8)


def _row(case: Case, seed: int, checked: bool) -> str:
    channels, cores = case.tiling
    sums = (0, 0)
    if checked:
        values = values_of(case, seed)
        sums = weighted_sum(values.packed), weighted_sum(values.results.view(np.uint32))
    numbers = (case.kind, case.m, case.k, case.n, case.group, channels, cores, seed)
    return f"    {{{', '.join(map(str, numbers))}, UINT64_C({sums[0]}), UINT64_C({sums[1]})}},"


def _table(name: str, given: Iterable[Case], checked: bool, first_seed: int) -> str:
    rows = "\n".join(_row(case, first_seed + index, checked) for index, case in enumerate(given))
    return f"static const Case {name}[] = {{\n{rows}\n}};\n"


@cache
def cases_header() -> str:
    """Return the text of cases.h."""
    checked = cases()
    rescaled = "\n".join(
        f"    {{{r.kind}, {r.result_bytes}, {r.zero_point}, UINT32_C({r.factor}), {r.first}, {r.step}, "
        f"{', '.join(map(str, jobs.tiling(16)[:2]))}}},"
        for r in rescales()
    )
    return f"""/* SPDX-License-Identifier: BSD-3-Clause */
/* Written by `openneutron board make`. */
#include <stdint.h>

#define CASES_VERSION {VERSION}
#define RESCALE_N {RESCALE_N}
#define QUICK_TIMES {QUICK_TIMES}

typedef struct {{
    int32_t kind, m, k, n, group, channels, cores;
    uint32_t seed;
    uint64_t weights_sum, results_sum; /* of all bytes of weights, and of the exact results */
}} Case;

typedef struct {{
    int32_t kind, result_bytes, zero_point;
    uint32_t factor;
    int32_t first, step, channels, cores;
}} Rescale;

{_table("form_cases", FORMS, True, 1)}
{_table("cases", checked, True, 100)}
{_table("timed_cases", TIMED, False, 0)}
static const Rescale rescales[] = {{
{rescaled}
}};
"""
