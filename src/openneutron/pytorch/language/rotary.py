# SPDX-License-Identifier: BSD-3-Clause
"""The rotary embedding of each layer of a language model of transformers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from openneutron.errors import InvalidModelError
from openneutron.language.decoder import Floats, Rotary, rotary_angles
from openneutron.pytorch.language.families import Config

FIXED = ("default", "linear", "llama3", "yarn")
"""The types of rotary embedding whose frequencies do not depend on the length of a text."""


def rotaries(config: Config, context: int, divisors: Floats | None = None) -> list[Rotary]:
    """Return the rotary embedding of each layer; layers with the same angles share one object.

    ``divisors`` divide the frequencies. Raises InvalidModelError for a type of scaling whose angles depend on the length of a text.
    """

    @cache
    def of(layer_type: str | None) -> Rotary:
        parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
        return Rotary(_table(config, parameters, layer_type, context, divisors))

    by_type = any(isinstance(value, dict) for value in config.rope_parameters.values())
    types = config.layer_types if by_type else [None] * config.num_hidden_layers
    return [of(each) for each in types]


def _table(
    config: Config, parameters: dict[str, Any], layer_type: str | None, context: int, divisors: Floats | None
) -> Floats:
    kind = parameters.get("rope_type", "default")
    if kind not in FIXED:
        raise InvalidModelError(
            f"model: its rotary embedding has the scaling '{kind}', whose angles change with the length of a text; the angles of a program "
            f"are a table. Known are {', '.join(FIXED)}."
        )
    if kind != "default":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", layer_type=layer_type)
        return rotary_angles(frequencies.numpy(), context, factor)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotated = int(size * parameters.get("partial_rotary_factor", 1.0))
    exponents = np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    frequencies = 1 / np.float32(parameters["rope_theta"]) ** exponents
    return rotary_angles(frequencies if divisors is None else frequencies / divisors, context)
