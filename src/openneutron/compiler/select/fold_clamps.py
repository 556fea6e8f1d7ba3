# SPDX-License-Identifier: BSD-3-Clause
"""Tables that only shift and clamp, in the call before them: activations and requantizations between equal scales.

Every kernel that requantizes ends with clamp(x + zero point, low, high); a shift by whole steps and another clamp are of
the same form, so that no bit changes. Where the scale changes too, LiteRT rounds twice, and the table stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import KernelCall
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN


def with_table(call: KernelCall, table: npt.NDArray[np.int8]) -> Mapping[str, int] | None:
    """The call's parameters where it does along what the 256-entry table behind it does; None where it can't."""
    if "clamp_min" not in call.params:
        return None
    low, high = call.params["clamp_min"], call.params["clamp_max"]
    if not INT8_MIN <= low <= high <= INT8_MAX:
        return None
    stored = np.arange(low, high + 1)
    made = table[stored - INT8_MIN].astype(np.int64)
    floor, ceiling = int(made.min()), int(made.max())
    # Above the floor a shift shows; a table of one value has none.
    above = int(np.argmax(made > floor))
    shift = int(made[above]) - low - above if ceiling > floor else 0
    if not np.array_equal(np.clip(stored + shift, floor, ceiling), made):
        return None
    params = {**call.params, "clamp_min": floor, "clamp_max": ceiling}
    if shift:
        # Pools have none: they leave their input's zero point.
        zero_point = params.get("output_zero_point")
        if zero_point is None or not INT8_MIN <= zero_point + shift <= INT8_MAX:
            return None
        params["output_zero_point"] = zero_point + shift
    return params
