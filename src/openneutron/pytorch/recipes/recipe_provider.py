# SPDX-License-Identifier: BSD-3-Clause
"""What a recipe is made of: our quantizer, partitioner and passes, in ExecuTorch's own pipeline."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir._warnings import ExperimentalWarning
from executorch.export import BackendRecipeProvider, ExportRecipe, LoweringRecipe, QuantizationRecipe, RecipeType
from torch.fx import GraphModule

from openneutron.converter import OPEN
from openneutron.errors import InvalidOptionError
from openneutron.options import CALLER, kib_in_bytes
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.passes.fold_batch_norm import FoldBatchNorm
from openneutron.pytorch.quantizer.training import begun, ended, set_training, with_biases, with_modes
from openneutron.pytorch.recipes.recipe_types import BACKEND, OpenNeutronRecipeType

FLOAT32, INT8 = "float32", "int8"

_PTQ = str(OpenNeutronRecipeType.INT8_PTQ.value)  # type: ignore[attr-defined]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """The keyword arguments of ``ExportRecipe.get_recipe``; those not told of here are as ``openneutron.compile`` has them.

    calibration_inputs_fn: gives typical inputs, each a tuple of the model's arguments; without it all example inputs of the
    export are taken. train_fn: trains the prepared model, in place (INT8_QAT). dynamic_batch_size: whether these may come in
    batches of any size. sram_budget: KiB. keep_float: modules and operators not to quantize.
    """

    target: str = "imxrt700"
    calibration_inputs_fn: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    train_fn: Callable[[GraphModule], None] | None = None
    dynamic_batch_size: bool = False
    keep_float: Sequence[object] = ()
    io: str = FLOAT32
    io_place: str = CALLER
    sram_budget: int | None = None
    operators_not_to_delegate: Sequence[str] = ()
    custom_delegation_options: CustomDelegationOptions | None = None
    use_neutron_for_format_conversion: bool = True
    fetch_constants_to_sram: bool = False
    dump_kernel_selection_code: bool = False
    use_profiling: bool = False
    intermediates_dir: str | os.PathLike[str] | None = None
    extra_flags: str | Sequence[str] | None = None
    converter: str = OPEN

    def __post_init__(self) -> None:
        if self.io not in (FLOAT32, INT8):
            raise InvalidOptionError(f"io: '{self.io}' is no border type; there are '{FLOAT32}' and '{INT8}'.")


class OpenNeutronRecipeProvider(BackendRecipeProvider):
    """Makes the recipes of ``OpenNeutronRecipeType``."""

    @property
    def backend_name(self) -> str:
        return BACKEND

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        return list(OpenNeutronRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """The recipe; None for one of another backend. ``kwargs`` are the fields of ``RecipeOptions``.

        Others are ignored with a warning, as all backends do: a recipe for several of them is made with all their arguments.
        Raises InvalidOptionError for unusable values, InvalidTargetError for an unknown target.
        """
        if not isinstance(recipe_type, OpenNeutronRecipeType):
            return None
        options = RecipeOptions(**_known(recipe_type, kwargs))
        is_qat = recipe_type is OpenNeutronRecipeType.INT8_QAT
        if is_qat and options.train_fn is None:
            raise InvalidOptionError(
                f"recipe {recipe_type.value}: there is no train_fn; quantization-aware training is what it does. Pass a function "
                f"that trains the model it is given, or take {_PTQ}."
            )
        target = NeutronTargetSpec(options.target)
        delegated = recipe_type is not OpenNeutronRecipeType.INT8_PTQ_NO_DELEGATE
        with warnings.catch_warnings():
            # That recipes are experimental, ExecuTorch says to who exports with one.
            warnings.simplefilter("ignore", ExperimentalWarning)
            made: ExportRecipe = ExportRecipe(
                name=recipe_type.value,
                quantization_recipe=_quantization(target, options, is_qat),
                lowering_recipe=LoweringRecipe(
                    partitioners=[_partitioner(target, options)] if delegated else None,
                    edge_compile_config=EdgeCompileConfig(
                        _core_aten_ops_exception_list=list(core_aten_ops_exception_list)
                    ),
                    edge_manager_transform_passes=[_remove_io_quant_ops] if options.io == INT8 else None,
                ),
                executorch_backend_config=ExecutorchBackendConfig(
                    extract_delegate_segments=False, delegate_alignment=16
                ),
                strict=False,
            )
        return made


def _known(recipe_type: RecipeType, kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [item.name for item in dataclasses.fields(RecipeOptions)]
    for name in kwargs.keys() - set(names):
        near = difflib.get_close_matches(name, names, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        _log.warning("recipe %s: '%s' is ignored; it takes %s.%s", recipe_type.value, name, ", ".join(names), hint)
    return {name: value for name, value in kwargs.items() if name in names}


def _quantization(target: NeutronTargetSpec, options: RecipeOptions, is_qat: bool) -> QuantizationRecipe:
    """The steps of ``calibrate_and_quantize``, between which ExecuTorch prepares, trains or calibrates, and converts."""
    quantizer = NeutronQuantizer(target, is_qat).keep_float(*options.keep_float)
    train_fn = options.train_fn

    def fold(module: GraphModule) -> GraphModule:
        quantizer.begin(module)
        FoldBatchNorm()(module)
        return module

    def train(prepared: GraphModule) -> None:
        assert train_fn is not None
        train_fn(set_training(with_modes(prepared), True))

    return QuantizationRecipe(
        quantizers=[quantizer],
        is_qat=is_qat,
        dynamic_batch_size=options.dynamic_batch_size,
        calibration_inputs_fn=options.calibration_inputs_fn,
        train_fn=train if is_qat else None,
        pre_prepare_passes=[partial(begun, quantizer=quantizer)] if is_qat else [fold],
        pre_convert_passes=[ended] if is_qat else None,
        post_convert_passes=[with_biases] if is_qat else None,
    )


def _partitioner(target: NeutronTargetSpec, options: RecipeOptions) -> NeutronPartitioner:
    spec = generate_neutron_compile_spec(
        options.target,
        extra_flags=options.extra_flags,
        intermediates_dir=None if options.intermediates_dir is None else os.fspath(options.intermediates_dir),
        operators_not_to_delegate=options.operators_not_to_delegate,
        use_neutron_for_format_conversion=options.use_neutron_for_format_conversion,
        fetch_constants_to_sram=options.fetch_constants_to_sram,
        dump_kernel_selection_code=options.dump_kernel_selection_code,
        use_profiling=options.use_profiling,
        sram_budget=kib_in_bytes(options.sram_budget),
        io=options.io_place,
        converter=options.converter,
    )
    return NeutronPartitioner(spec, target, options.custom_delegation_options)


def _remove_io_quant_ops(manager: EdgeProgramManager) -> list[RemoveIOQuantOpsPass]:
    return [RemoveIOQuantOpsPass(edge_program_manager=manager)]
