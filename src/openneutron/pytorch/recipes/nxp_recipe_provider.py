# SPDX-License-Identifier: BSD-3-Clause
"""The recipes of ExecuTorch's NXP backend, made by this project's quantizer and partitioner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from executorch.export import BackendRecipeProvider, ExportRecipe, RecipeType
from torch.fx import GraphModule

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.options import FLOAT32, INT8, CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.recipes.nxp_recipe_types import NXP_BACKEND, NXPRecipeType
from openneutron.pytorch.recipes.recipe import RecipeOptions, recipe_of

NEUTRON_RECIPE_CONFIG_KEY = "neutron_recipe_config"
"""The keyword argument of ``ExportRecipe.get_recipe`` that has the options of a recipe."""

QAT = (NXPRecipeType.INT8_QAT_NEUTRON, NXPRecipeType.INT8_QAT_NO_DELEGATE)
ON_CPU = (NXPRecipeType.INT8_PTQ_NO_DELEGATE, NXPRecipeType.INT8_QAT_NO_DELEGATE)


@dataclass(slots=True)
class NeutronRecipeConfig:
    """The options of a recipe, with the fields of ExecuTorch's NXP backend in its order.

    ``input_spec``: the shape of the input, or a list with the shape or ``ModelInputSpec`` of each input. It is only
    passed to ``calibration_inputs_fn``. Without that function, it has no effect, and the example inputs of the export
    calibrate the model. ``get_quantizer_fn``: a function that returns a ``NeutronQuantizer`` of this project.
    ``custom_delegation_options``: the options of the partitioner, as for ``NeutronPartitioner``.
    ``remove_quant_io_ops``: True makes float inputs and outputs int8. ``use_quant_state_dict`` has no effect: the
    partitioner finds the data of constants in the program. ``target`` is the parameter ``config`` of
    ``generate_neutron_compile_spec``, and ``train_fn`` is that of ``QuantizationOptions``. The other fields are
    parameters of ``generate_neutron_compile_spec`` with the same names.
    """

    input_spec: Any = None
    target: str = targets.DEFAULT
    operators_not_to_delegate: list[str] | None = None
    intermediates_dir: str | None = None
    get_quantizer_fn: Callable[[], NeutronQuantizer] | None = None
    custom_delegation_options: CustomDelegationOptions | None = None
    remove_quant_io_ops: bool = False
    use_quant_state_dict: bool = True
    use_neutron_for_format_conversion: bool = True
    fetch_constants_to_sram: bool = False
    dump_kernel_selection_code: bool = False
    use_profiling: bool = False
    train_fn: Callable[[GraphModule], None] | None = None
    calibration_inputs_fn: Callable[[Any], Iterable[tuple[Any, ...]]] | None = None

    def to_options(self) -> RecipeOptions:
        """Return the options as those of a recipe of this project."""
        custom, calibration = self.custom_delegation_options or CustomDelegationOptions(), self.calibration_inputs_fn
        return RecipeOptions(
            options=CompileOptions(
                target=self.target, prefetch_constants=self.fetch_constants_to_sram, profile=self.use_profiling
            ),
            quantization=QuantizationOptions(
                io_dtype=INT8 if self.remove_quant_io_ops else FLOAT32, train_fn=self.train_fn
            ),
            delegation=DelegationOptions(
                operators_not_to_delegate=tuple(self.operators_not_to_delegate or ()),
                use_neutron_for_format_conversion=self.use_neutron_for_format_conversion,
                allow_no_op_partitions=custom.allow_no_op_partitions,
            ),
            calibration_inputs_fn=None if calibration is None else lambda: calibration(self.input_spec),
            intermediates_dir=self.intermediates_dir,
            dump_kernel_selection_code=self.dump_kernel_selection_code,
        )


class NXPRecipeProvider(BackendRecipeProvider):
    """Makes the recipes of ``NXPRecipeType``."""

    @property
    def backend_name(self) -> str:
        return NXP_BACKEND

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        return list(NXPRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """Return the recipe of a type; None for a type of another backend.

        Raises InvalidOptionError without ``neutron_recipe_config`` and for unusable values in it, InvalidTargetError for an unknown
        target.
        """
        if not isinstance(recipe_type, NXPRecipeType):
            return None
        config = kwargs.get(NEUTRON_RECIPE_CONFIG_KEY)
        if not isinstance(config, NeutronRecipeConfig):
            raise InvalidOptionError(
                f"recipe {recipe_type.value}: {NEUTRON_RECIPE_CONFIG_KEY} is {type(config).__name__}; it is a "
                f"{NeutronRecipeConfig.__name__}. Pass {NEUTRON_RECIPE_CONFIG_KEY}={NeutronRecipeConfig.__name__}(...)."
            )
        quantizer = None if config.get_quantizer_fn is None else config.get_quantizer_fn()
        if quantizer is not None and not isinstance(quantizer, NeutronQuantizer):
            raise InvalidOptionError(
                f"recipe {recipe_type.value}: get_quantizer_fn returned a {type(quantizer).__module__}.{type(quantizer).__name__}; a "
                f"recipe takes a {NeutronQuantizer.__module__}.{NeutronQuantizer.__name__}."
            )
        is_qat, is_delegated = recipe_type in QAT, recipe_type not in ON_CPU
        return recipe_of(str(recipe_type.value), config.to_options(), is_qat, is_delegated, quantizer)
