# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions that a core executes for the kernels of language models.

``language.json`` is made by ``python -m bench.fit_language``, which counts the instructions of many calls in QEMU and fits six constants
for each form of a kernel's calls.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "language.json"

TOGETHER = 8
"""The number of tokens for which dynamic_linear_f32 reads a row of weights once."""

LINEAR, ATTENTION, EMBEDDING, NORM = "dynamic_linear_f32", "cached_attention_f32", "token_embedding_f32", "norm_f32"
CHOICES = {"activation_f32": "kind", NORM: "centred", LINEAR: "bits", EMBEDDING: "bits"}
"""The name of the parameter that selects the inner loops of a kernel, by kernel."""

FOUR = 4
"""The number of tokens from which a row of int4 weights is decoded once for all tokens. Fewer tokens decode each weight
as they multiply it."""


class Counted(NamedTuple):
    """How much work a call has, in units of several kinds. As a row of ``table``: how many instructions a unit of
    each kind takes.

    * ``tokens``: tokens that are computed.
    * ``inputs`` and ``outputs``: values that are read and written for all tokens.
    * ``rows``: rows of weights, counted once for each pass over the weights; for attention, scores.
    * ``products``: multiply-accumulates.
    * ``others``: int4 weights that are decoded for several tokens, values that are rotated, or values of a residual.
    """

    tokens: float
    inputs: float
    outputs: float
    rows: float
    products: float
    others: float


@dataclass(frozen=True, slots=True)
class LanguageCall:
    """A call of a kernel of language models: the kernel, its parameters by name, and the channels of its output."""

    kernel: str
    params: Mapping[str, int]
    channels: int

    def form(self, tokens: int) -> str:
        """Return the name of the row in the table for a run of this many tokens: the kernel, and which of its inner
        loops the call uses."""
        choice = CHOICES.get(self.kernel)
        if choice is None:
            return self.kernel
        few = ":few" if self._decodes and self.computed(tokens) < FOUR else ""
        return f"{self.kernel}:{self.params[choice]}{few}"

    @property
    def _decodes(self) -> bool:
        return self.kernel == LINEAR and self.params["bits"] == 4

    def computed(self, tokens: int) -> int:
        """Return the number of tokens that this call computes in a run of ``tokens`` tokens."""
        return 1 if self.kernel == LINEAR and self.params["last"] else tokens

    def passes(self, tokens: int) -> int:
        """Return how often a linear layer reads all of its weights in a run of ``tokens`` tokens."""
        return math.ceil(self.computed(tokens) / TOGETHER)

    def work(self, tokens: int, position: int) -> Counted:
        """Return the work of a run of ``tokens`` tokens, the first of which is at index ``position`` of the text."""
        if self.kernel == ATTENTION:
            return self._attention(tokens, position)
        if self.kernel == LINEAR:
            many, rows, inputs = self.computed(tokens), self.channels * self.passes(tokens), self.params["inputs"]
            decoded = rows * inputs if self._decodes and many >= FOUR else 0
            return Counted(many, many * inputs, many * self.channels, rows, many * self.channels * inputs, decoded)
        values = tokens * self.channels
        return Counted(tokens, 0, values, 0, 0, values if self.kernel == NORM and self.params["add"] else 0)

    def _attention(self, tokens: int, position: int) -> Counted:
        heads, groups, size, window = (self.params[name] for name in ("heads", "groups", "size", "window"))
        places = range(position + 1, position + tokens + 1)
        scores = heads * sum(min(each, window) if window else each for each in places)
        values, rotated = tokens * size, tokens * (heads + groups) * self.params["rotated"]
        return Counted(tokens, values * (heads + 2 * groups), values * heads, scores, 2 * scores * size, rotated)

    def weight_bytes(self, tokens: int) -> float:
        """Return the bytes of constants that a run of ``tokens`` tokens reads. A group of int4 weights has 3 more
        bytes, for its decode scale and bias."""
        if self.kernel not in (LINEAR, EMBEDDING):
            return 8.0 * self.channels if self.kernel == NORM else 0.0
        of_row = self.params["inputs"] * (1.0 if self.params["bits"] == 8 else 0.5 + 3 / self.params["group"])
        if self.kernel == EMBEDDING:
            return tokens * (of_row + 4)
        return self.passes(tokens) * self.channels * (of_row + 8)

    def instructions(self, tokens: int, position: int, instruction_set: str) -> float | None:
        """Return the instructions of a run of ``tokens`` tokens, the first of which is at index ``position`` of the
        text. Return None if the instruction set's table has no row for the call (``form``)."""
        each = table(instruction_set).get(self.form(tokens))
        return None if each is None else math.fsum(map(operator.mul, each, self.work(tokens, position)))


@cache
def table(instruction_set: str) -> Mapping[str, Counted]:
    """Return the instructions by the form of a call; empty for an instruction set on which none were counted."""
    found = json.loads(FILE.read_text()).get(instruction_set, {})
    return {name: Counted(*each) for name, each in found.items()}
