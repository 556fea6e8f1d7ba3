# SPDX-License-Identifier: BSD-3-Clause
"""From PyTorch to the NPU: quantizer, partitioner, lowering and ExecuTorch backend.

Module and class names below this package are those of ExecuTorch's NXP backend, so that a script written for it needs only
``executorch.backends.nxp`` replaced by ``openneutron.pytorch`` in its imports.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

_DECOMPOSITION = "torch._inductor.decomposition"
_POST_GRAD = "torch._inductor.fx_passes.post_grad"


@contextmanager
def _standing_in(name: str, **attributes: object) -> Iterator[None]:
    """Replace a module by one that has only these attributes, for imports inside the block.

    A module that is imported already is not replaced.
    """
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    vars(stand_in).update(attributes)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


def _decompose_auto_functionalized(graph: Any) -> Any:
    """Decompose the calls of ``auto_functionalized`` in a graph. ``_POST_GRAD`` is imported only for a graph with such calls."""
    if any(str(node.target).startswith("auto_functionalized") for node in graph.nodes):
        return import_module(_POST_GRAD).decompose_auto_functionalized(graph)
    return None


@contextmanager
def _without_code_generators(_: ModuleType) -> Iterator[None]:
    with _standing_in(_POST_GRAD, decompose_auto_functionalized=_decompose_auto_functionalized):
        yield


@contextmanager
def _with_fast_yaml(_: ModuleType) -> Iterator[None]:
    """Let ExecuTorch read edge.yaml, the data types of its operators, with PyYAML's reader in C where that is installed."""
    try:
        from ruamel.yaml import YAML
        from yaml import CSafeLoader, load
    except ImportError:
        yield
        return
    before = YAML.load
    YAML.load = lambda self, stream: load(stream, CSafeLoader)  # type: ignore[method-assign]
    try:
        yield
    finally:
        YAML.load = before  # type: ignore[method-assign]


_REGISTERED: list[tuple[Any, Any]] = []
"""The operators with their decompositions that are registered with torch's code generators when these are imported."""


def _register_later(operators: Any) -> Callable[[Any], Any]:
    def registered(decomposition: Any) -> Any:
        _REGISTERED.append((operators, decomposition))
        return decomposition

    return registered


@contextmanager
def _registering_later(utils: ModuleType) -> Iterator[None]:
    """Delay the registration of torchao's operators with torch's code generators until the code generators are imported."""
    yield
    register = getattr(utils, "_register_custom_op", None)
    if register is None:
        return

    def register_custom_op(*arguments: Any, **keywords: Any) -> Any:
        with _standing_in(_DECOMPOSITION, register_decomposition=_register_later):
            return register(*arguments, **keywords)

    utils._register_custom_op = register_custom_op  # type: ignore[attr-defined]


@contextmanager
def _registering_now(decomposition: ModuleType) -> Iterator[None]:
    yield
    known: dict[Any, Any] = decomposition.decompositions
    while _REGISTERED:
        operators, function = _REGISTERED.pop(0)
        for operator in operators:
            for name in operator.overloads():  # torch lists composite operators by itself, with what they are made of
                known.pop(getattr(operator, name), None)
        decomposition.register_decomposition(operators)(function)


AROUND: dict[str, Callable[[ModuleType], AbstractContextManager[None]]] = {
    "executorch.exir.dialects.edge._ops": _with_fast_yaml,
    "torch.export._remove_auto_functionalized_pass": _without_code_generators,
    "torchao.utils": _registering_later,
    _DECOMPOSITION: _registering_now,
}
"""The context in which a module is executed when it is imported, by the name of the module."""


class ShortImports(MetaPathFinder):
    """A finder of modules that executes the modules of ``AROUND`` in their contexts."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in AROUND:
            return None
        specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in specs if found is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_in_context(module: ModuleType) -> None:
                with AROUND[fullname](module):
                    execute(module)

            spec.loader.exec_module = execute_in_context  # type: ignore[method-assign]
        return spec


def shorten_imports() -> None:
    """Let later imports of ExecuTorch and torchao take half of their time.

    Both import torch's code generators for CPUs and GPUs, which a compile for an NPU does not use, and ExecuTorch reads a long table
    with a slow YAML reader. Now the code generators are imported at their first use, and a fast reader reads the table. Modules that
    are imported already stay as they are.
    """
    if not any(isinstance(finder, ShortImports) for finder in sys.meta_path):
        sys.meta_path.insert(0, ShortImports())


if TYPE_CHECKING:
    from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions as CustomDelegationOptions
    from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec as NeutronTargetSpec
    from openneutron.pytorch.neutron_partitioner import NeutronPartitioner as NeutronPartitioner
    from openneutron.pytorch.nxp_backend import NeutronCompileSpecBuilder as NeutronCompileSpecBuilder
    from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec as generate_neutron_compile_spec
    from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize as calibrate_and_quantize
    from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer as NeutronQuantizer

_HOMES = {
    "CustomDelegationOptions": "backend.custom_delegation_options",
    "NeutronTargetSpec": "backend.neutron_target_spec",
    "NeutronPartitioner": "neutron_partitioner",
    "NeutronCompileSpecBuilder": "nxp_backend",
    "generate_neutron_compile_spec": "nxp_backend",
    "calibrate_and_quantize": "quantizer.calibrate",
    "NeutronQuantizer": "quantizer.neutron_quantizer",
}
"""The module of each name that this package exports, relative to the package. It is imported on first use of the name."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'openneutron.pytorch' has no attribute '{name}'")
    found = getattr(import_module(f"openneutron.pytorch.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


WARNINGS: tuple[tuple[str, type[Warning], str], ...] = (
    # exir/dialects/edge/_ops.py and exir/_serialize/_flatbuffer.py read their own data files in the way of Python 3.10.
    (r"(read|open)_(text|binary) is deprecated", DeprecationWarning, r"(executorch\.exir|importlib\.resources)\."),
    # torch's own modules are scripted when they are imported.
    (r"`torch\.jit\.script_method` is deprecated", DeprecationWarning, r"torch\.jit\."),
    # executorch.extension.pybindings.portable_lib, which registers the runtime that a .pte runs in.
    (r"This API is experimental and subject to change", Warning, r"executorch\."),
    # Every deep copy of a program's signature: copyreg creates the class again, and torch warns about the class.
    (r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning, r"copyreg"),
)
"""Warnings of other packages: a pattern of the message's start, the category, and a pattern of the name of the module that causes the warning."""

LOGS: tuple[tuple[str, str], ...] = (
    # C++ extensions for GPUs that torchao's wheel has for other releases of Python and of CUDA.
    ("torchao", "Failed to load "),
    # torchao registers its enumerations with torch's pytrees.
    ("torch.utils._pytree", "%s is an Enum subclass and is now natively supported by"),
)
"""Log messages of other packages: the logger, and the start of the message before its arguments are inserted."""


def ignore_known() -> None:
    """Suppress the warnings of ``WARNINGS`` and ``LOGS`` in this process, whatever its -W options are."""
    for message, category, module in WARNINGS:
        warnings.filterwarnings("ignore", message, category, module)
    for name, beginning in LOGS:
        logging.getLogger(name).addFilter(_Without(beginning))


class _Without(logging.Filter):
    """A filter that passes records whose message does not start with ``beginning``."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(self.beginning)


ignore_known()
shorten_imports()
