# SPDX-License-Identifier: BSD-3-Clause
"""The float32 samples of PyTorch's operator database as modules of tensors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import openneutron.pytorch  # noqa: F401  # isort: skip  (before torch and ExecuTorch, whose warnings on import it turns off)
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from openneutron.pytorch.graph.program import is_pointwise_operator
from openneutron.pytorch.operators.families import DECOMPOSITIONS, LOWER_RULES
from openneutron.pytorch.partition.delegation import decomposed, has_kernel


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One call of an operator: its tensors, and a function of them that makes the call. ``is_defined``: the results have
    values, not only shapes."""

    tensors: tuple[Tensor, ...]
    call: Callable[..., Any]
    is_defined: bool = True


def operators() -> Mapping[str, Any]:
    """Return every operator of ``op_db`` that takes float32 on the CPU, by its name and, after a dot, its variant's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db  # 14 s: only where it is needed
    return {
        f"{info.name}.{info.variant_test_name}".rstrip("."): info
        for info in op_db
        if torch.float32 in info.supported_dtypes("cpu")
    }


def samples_of(info: Any, most: int) -> list[Sample]:
    """Return at most ``most`` of an operator's samples (0: all), spread evenly over their list.

    Samples without a tensor are left out, and samples that need more of a tensor than its values (``as_strided`` on a
    part of a larger tensor).
    """
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
    stride = math.ceil(len(inputs) / most) if most and inputs else 1
    is_defined = "empty" not in info.name  # empty_like and its relatives return memory as it is
    found = [_sample(info.op, item, is_defined) for item in inputs[::stride]]
    return [sample for sample in found if sample is not None and _runs(sample)]


def _sample(function: Callable[..., Any], item: Any, is_defined: bool) -> Sample | None:
    leaves, spec = pytree.tree_flatten(((item.input, *item.args), item.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensors = tuple(leaves[place].detach() for place in places)
    if not tensors or any(tensor.layout != torch.strided for tensor in tensors):
        return None

    def call(*given: Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return function(*args, **kwargs)

    return Sample(tensors, call, is_defined)


def _runs(sample: Sample) -> bool:
    """Return whether PyTorch itself computes the call on copies of its tensors."""
    try:
        with torch.no_grad():
            sample.call(*(tensor.clone() for tensor in sample.tensors))
    except (RuntimeError, AssertionError):  # operators of other devices raise AssertionError
        return False
    return True


def may_be_refused(sample: Sample) -> bool:
    """Return whether PyTorch computes the call with complex numbers, random numbers, a result whose size depends on values, or an
    operator that the toolchain neither has a rule for nor a kernel on the CPU. This is a guess."""
    with torch.no_grad(), _Calls() as seen:
        sample.call(*(tensor.clone() for tensor in sample.tensors))
    return seen.has_complex or not all(map(_is_known, seen.overloads))


class _Calls(TorchDispatchMode):
    """The ATen operators that are called inside a with statement, and whether a result is complex."""

    def __init__(self) -> None:
        super().__init__()
        self.overloads: set[OpOverload] = set()
        self.has_complex = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.overloads.add(func)
        result = func(*args, **(kwargs or {}))
        self.has_complex |= any(tensor.is_complex() for tensor in results_of(result))
        return result


_UNSURE = {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


@cache
def _is_known(overload: OpOverload) -> bool:
    if _UNSURE.intersection(overload.tags):
        return False
    return (
        any(str(overload) in rules for rules in (LOWER_RULES, DECOMPOSITIONS))
        or overload in decomposed()
        or is_pointwise_operator(overload)
        or overload._schema.is_mutable
        or any(item.alias_info is not None for item in overload._schema.returns)
        or has_kernel(overload)
    )


class _Called(nn.Module):
    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.call = sample.call

    def forward(self, *tensors: Tensor) -> Any:
        return self.call(*tensors)


class Samples(nn.Module):
    """Several samples side by side, each a module (``parts.0``) with its own tensors and results."""

    def __init__(self, samples: list[Sample]) -> None:
        super().__init__()
        self.counts = [len(sample.tensors) for sample in samples]
        # Copy each tensor: some samples share tensors.
        self.tensors = tuple(tensor.clone() for sample in samples for tensor in sample.tensors)
        self.parts = nn.ModuleList([_Called(sample) for sample in samples])

    def forward(self, *tensors: Tensor) -> list[Any]:
        rest = iter(tensors)
        return [part(*(next(rest) for _ in range(count))) for part, count in zip(self.parts, self.counts, strict=True)]


def results_of(result: Any) -> Iterator[Tensor]:
    """Return the tensors of a result, in order."""
    return (leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
