# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of Qwen3 with weights of 4 bits on i.MX 95: on the Cortex-A55 alone, and with NXP's published matrix products on the NPU.

Every product with weights is one job of the NPU. A job takes its dispatch, and the longer of its multiplications and the transfer of its
weights. The cores quantize what a job reads, scale what it writes, and compute the rest. The constants are fitted to the published
runs of Qwen3-1.7B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.published import A55, Figure

TOKENS = 585
"""The tokens of the prompt in the published runs."""

WEIGHT_BYTES = 4.5 / 8
"""The bytes of a weight: 4 bits, and a scale of 16 bits for 32 weights (Q4_0 of llama.cpp)."""

CORE_HERTZ = 6 * 1.8e9
"""The cycles of the six Cortex-A55 in a second."""

NPU_PRODUCTS = 1024e9
"""The products of the NPU in a second."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Qwen3 model: config.json of Qwen/Qwen3-1.7B, 4B and 8B (Apache-2.0)."""

    layers: int
    hidden: int
    wide: int
    heads: int
    groups: int = 8
    head: int = 128
    words: int = 151_936

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return inputs and outputs of the products with weights in a layer."""
        queries, keys = self.heads * self.head, self.groups * self.head
        attention = ((self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden))
        return (*attention, (self.hidden, self.wide), (self.hidden, self.wide), (self.wide, self.hidden))

    @property
    def weights(self) -> int:
        """Return the weights of all layers."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.products)

    @property
    def values(self) -> int:
        """Return the values that the jobs of all layers read and write for a token."""
        return self.layers * sum(inputs + outputs for inputs, outputs in self.products)

    @property
    def last(self) -> int:
        """Return the weights of the layer that yields the words' scores."""
        return self.hidden * self.words


SHAPES = {"1.7B": Shape(28, 2048, 6144, 16), "4B": Shape(36, 2560, 9728, 32), "8B": Shape(36, 4096, 12288, 32)}

PARAMETERS = (
    ("products of a core in a cycle, in a prompt", 4.0, 0.5),
    ("bytes of weights that the cores read in a second", 6.5e9, 0.4),
    ("seconds of a job's dispatch", 1e-4, 1.0),
    ("bytes of weights that the NPU reads in a second", 6e9, 0.5),
    ("cycles of a core for a value that a job reads or writes", 20.0, 1.0),
    ("share of the NPU's multipliers that work in a prompt", 0.5, 1.0),
)
"""Name, start value and standard deviation of the start value's logarithm. The products are a quarter of what a core's instructions allow;
a memory test on the board reaches 13 GB/s (secondary: github.com/kylefoxaustin/imx95-device-skills), and half of it is assumed. The
others are assumed."""


def seconds(figure: Figure, values: np.ndarray) -> float:
    """Return the modelled seconds of a figure with these parameters: those of a prompt, or of a token that is decoded."""
    rate, read, dispatch, npu_read, each, share = values
    name, phase = figure.network.removeprefix("Qwen3-").split()
    shape = SHAPES[name]
    tokens = TOKENS if phase == "prefill" else 1
    context = TOKENS / 2 if phase == "prefill" else TOKENS + 16
    attention = 2 * tokens * context * shape.heads * shape.head * shape.layers
    on_cores = attention / rate / CORE_HERTZ + shape.last * WEIGHT_BYTES / read
    if figure.target == A55:
        products = tokens * shape.weights / rate / CORE_HERTZ
        return float(on_cores + max(products, shape.weights * WEIGHT_BYTES / read))
    jobs = shape.layers * len(shape.products)
    longest = max(tokens * shape.weights / NPU_PRODUCTS / share, shape.weights * WEIGHT_BYTES / npu_read)
    return float(on_cores + jobs * dispatch + longest + tokens * shape.values * each / CORE_HERTZ)
