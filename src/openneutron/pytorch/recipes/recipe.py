# SPDX-License-Identifier: BSD-3-Clause
"""The recipes of backend ``openneutron``: their types, their options, and the provider that makes them."""

from __future__ import annotations

import dataclasses
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig
from executorch.exir._warnings import ExperimentalWarning
from executorch.export import BackendRecipeProvider, ExportRecipe, LoweringRecipe, QuantizationRecipe, RecipeType
from torch.fx import GraphModule

from openneutron.errors import InvalidOptionError
from openneutron.options import FLOAT32, CompileOptions, DelegationOptions, QuantizationOptions, suggestion
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from openneutron.pytorch.quantizer.calibrate import begun, ended, quantizer_for, set_training, with_biases, with_modes
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.passes.batch_norm import FoldBatchNorm

BACKEND = "openneutron"


class OpenNeutronRecipeType(RecipeType):
    """The recipes of this backend: the quantization of a model, and its delegation."""

    INT8_PTQ = "openneutron_int8_ptq"
    """The model is quantized to int8 with scales from calibration, and delegated."""
    INT8_QAT = "openneutron_int8_qat"
    """The model is trained with its int8 quantization simulated, and delegated. The recipe needs ``train_fn``."""
    INT8_PTQ_NO_DELEGATE = "openneutron_int8_ptq_no_delegate"
    """The model is quantized as by INT8_PTQ and runs on the CPU, with nearly the same results: only quantization has an effect."""

    @classmethod
    def get_backend_name(cls) -> str:
        return BACKEND


_PTQ = str(OpenNeutronRecipeType.INT8_PTQ.value)  # type: ignore[attr-defined]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """The keyword arguments of ``ExportRecipe.get_recipe``."""

    options: CompileOptions = CompileOptions()
    """The target and the other options of the compiler."""
    quantization: QuantizationOptions = QuantizationOptions()
    """The quantization options of ``openneutron.compile``, without ``channels_last``: images have the memory format of the example
    inputs. The recipe INT8_QAT needs ``train_fn``."""
    delegation: DelegationOptions = DelegationOptions()
    """The delegation options of ``openneutron.compile``, without ``any_runtime`` and ``must_delegate``: an export checks neither."""
    calibration_inputs_fn: Callable[[], Iterable[tuple[Any, ...]]] | None = None
    """A function that returns typical inputs, each a tuple of the model's arguments; None: all example inputs of the
    export."""
    dynamic_batch_size: bool = False
    """True accepts typical inputs in batches of any size."""
    intermediates_dir: str | os.PathLike[str] | None = None
    """A folder for each partition's ``.tflite``, before and after compiling."""
    dump_kernel_selection_code: bool = False
    """True writes a C file that registers only the kernels that a partition calls to the working directory."""

    def __post_init__(self) -> None:
        for name, given in (
            ("channels_last", self.quantization.channels_last),
            ("any_runtime", self.delegation.any_runtime or None),
            ("must_delegate", None if self.delegation.must_delegate else False),
        ):
            if given is not None:
                raise InvalidOptionError(f"{name}: a recipe has no such option. Leave it out.")


class OpenNeutronRecipeProvider(BackendRecipeProvider):
    """Makes the recipes of ``OpenNeutronRecipeType``."""

    @property
    def backend_name(self) -> str:
        return BACKEND

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        return list(OpenNeutronRecipeType)

    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """Return the recipe of a type; None for a type of another backend. ``kwargs`` are the fields of ``RecipeOptions``.

        Other keywords are ignored with a warning, as by all backends: a recipe for several backends gets the keywords of all.
        Raises InvalidOptionError for unusable values, InvalidTargetError for an unknown target.
        """
        if not isinstance(recipe_type, OpenNeutronRecipeType):
            return None
        options = RecipeOptions(**_known(recipe_type, kwargs))
        is_qat = recipe_type is OpenNeutronRecipeType.INT8_QAT
        is_delegated = recipe_type is not OpenNeutronRecipeType.INT8_PTQ_NO_DELEGATE
        return recipe_of(str(recipe_type.value), options, is_qat, is_delegated)


def recipe_of(
    name: str, options: RecipeOptions, is_qat: bool, is_delegated: bool, quantizer: NeutronQuantizer | None = None
) -> ExportRecipe:
    """Return a recipe of this name. ``quantizer`` is None for the quantizer that the options describe.

    Raises InvalidOptionError for unusable values, InvalidTargetError for an unknown target.
    """
    if is_qat and options.quantization.train_fn is None:
        raise InvalidOptionError(
            f"recipe {name}: there is no train_fn; quantization-aware training is what it does. Pass a function "
            f"that trains the model it is given, or take {_PTQ}."
        )
    target = NeutronTargetSpec(options.options.target)
    if quantizer is None:
        quantizer = quantizer_for(options.quantization, target, is_qat, options.options.converter)
    with warnings.catch_warnings():
        # ExecuTorch warns that recipes are experimental when one is used in an export.
        warnings.simplefilter("ignore", ExperimentalWarning)
        made: ExportRecipe = ExportRecipe(
            name=name,
            quantization_recipe=_quantization(quantizer, options, is_qat),
            lowering_recipe=LoweringRecipe(
                partitioners=[_partitioner(target, options)] if is_delegated else None,
                edge_compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=list(core_aten_ops_exception_list)),
                edge_manager_transform_passes=[
                    lambda manager: [RemoveIOQuantOpsPass(manager, options.quantization.io_dtype)]
                ]
                if options.quantization.io_dtype != FLOAT32
                else None,
            ),
            executorch_backend_config=ExecutorchBackendConfig(extract_delegate_segments=False, delegate_alignment=16),
            strict=False,
        )
    return made


def _known(recipe_type: RecipeType, kwargs: dict[str, Any]) -> dict[str, Any]:
    names = [item.name for item in dataclasses.fields(RecipeOptions)]
    for name in kwargs.keys() - set(names):
        hint = suggestion(name, names)
        _log.warning("recipe %s: '%s' is ignored; it takes %s.%s", recipe_type.value, name, ", ".join(names), hint)
    return {name: value for name, value in kwargs.items() if name in names}


def _quantization(quantizer: NeutronQuantizer, options: RecipeOptions, is_qat: bool) -> QuantizationRecipe:
    """Return the quantization recipe: the steps of ``calibrate_and_quantize`` as passes before and after those of ExecuTorch.

    ExecuTorch itself prepares the model, trains or calibrates it, and converts it.
    """
    train_fn = options.quantization.train_fn

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
    delegation = options.delegation
    spec = generate_neutron_compile_spec(
        options.options.target,
        intermediates_dir=None if options.intermediates_dir is None else os.fspath(options.intermediates_dir),
        operators_not_to_delegate=delegation.operators_not_to_delegate,
        use_neutron_for_format_conversion=delegation.use_neutron_for_format_conversion,
        dump_kernel_selection_code=options.dump_kernel_selection_code,
        options=options.options,
    )
    return NeutronPartitioner(
        spec,
        target,
        CustomDelegationOptions(delegation.allow_no_op_partitions),
        preserve_ops=list(delegation.preserve_ops),
    )
