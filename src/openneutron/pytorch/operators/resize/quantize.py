# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of resizes: as their input, but for those that overshoot or average (5 dB on noise)."""

from __future__ import annotations

from openneutron.pytorch.operators.rules.annotation import FUNCTION, MOVE

_FORMS = ("default", "vec")

RULES = {
    **{f"aten.upsample_nearest2d.{form}": MOVE for form in _FORMS},
    **{f"aten._upsample_nearest_exact2d.{form}": MOVE for form in _FORMS},
    **{f"aten.upsample_bilinear2d.{form}": MOVE for form in _FORMS},
    **{f"aten._upsample_bilinear2d_aa.{form}": FUNCTION for form in _FORMS},
    **{f"aten.upsample_bicubic2d.{form}": FUNCTION for form in _FORMS},
    **{f"aten._upsample_bicubic2d_aa.{form}": FUNCTION for form in _FORMS},
}
