# SPDX-License-Identifier: BSD-3-Clause
"""The names of the recipes."""

from __future__ import annotations

from executorch.export import RecipeType

BACKEND = "openneutron"


class OpenNeutronRecipeType(RecipeType):
    """The quantization of a model, with or without delegation."""

    INT8_PTQ = "openneutron_int8_ptq"
    """int8, scales from calibration; delegated."""
    INT8_QAT = "openneutron_int8_qat"
    """int8, trained with its quantization simulated; delegated. It needs ``train_fn``."""
    INT8_PTQ_NO_DELEGATE = "openneutron_int8_ptq_no_delegate"
    """The same numbers as INT8_PTQ, nearly, on the CPU: what quantization alone changes."""

    @classmethod
    def get_backend_name(cls) -> str:
        return BACKEND
