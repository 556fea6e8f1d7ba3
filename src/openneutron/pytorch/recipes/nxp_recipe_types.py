# SPDX-License-Identifier: BSD-3-Clause
"""The types of recipes that ExecuTorch's NXP backend has, under its names."""

from executorch.export import RecipeType

NXP_BACKEND = "nxp"


class NXPRecipeType(RecipeType):
    """The recipes of ExecuTorch's NXP backend: the quantization of a model, and its delegation.

    Each takes ``neutron_recipe_config=NeutronRecipeConfig(...)``.
    """

    INT8_PTQ_NEUTRON = "nxp_int8_ptq_neutron"
    """The model is quantized to int8 with scales from calibration, and delegated."""
    INT8_QAT_NEUTRON = "nxp_int8_qat_neutron"
    """The model is trained with its int8 quantization simulated, and delegated. The recipe needs ``train_fn``."""
    INT8_PTQ_NO_DELEGATE = "nxp_int8_ptq_no_delegate"
    """The model is quantized as by INT8_PTQ_NEUTRON and runs on the CPU."""
    INT8_QAT_NO_DELEGATE = "nxp_int8_qat_no_delegate"
    """The model is trained as by INT8_QAT_NEUTRON and runs on the CPU."""

    @classmethod
    def get_backend_name(cls) -> str:
        return NXP_BACKEND
