# SPDX-License-Identifier: BSD-3-Clause
"""Shorten five steps of torch that each export and each lowering repeat, with the same results."""

from __future__ import annotations

import functools
import sys
import typing
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

LISTS = ("torch._export.utils", "torch.export.decomp_utils", "torch.export.exported_program")
"""The modules with a name for torch's function that lists the composite operators."""

SOURCE = ("_code", "_lineno_map", "_prologue_start")
"""The attributes of a graph module with its Python source."""

MOST_CODES = 256
"""The number of codes that are kept, those that were used last."""

_CODES: dict[object, Any] = {}

Kernels = dict[Any, Any]
"""The Python kernels of an operator, by dispatch key."""

Overriding = Callable[[Mapping[Any, Callable[..., Any]]], AbstractContextManager[None]]
"""A function of a decomposition for each composite operator. Within the context, the operators have these decompositions."""


def shorten() -> None:
    """Let torch list its composite operators once for all lists with the same operators registered, and keep the type
    annotations and the tables that it makes for each of these 560 operators in each lowering.

    Nothing changes where the modules are not imported, or have other functions.
    """
    if not all(name in sys.modules for name in LISTS):
        return
    walks, *_, programs = modules = [sys.modules[name] for name in LISTS]
    listed = getattr(walks, "_collect_all_valid_cia_ops", None)
    walk = getattr(walks, "_materialize_cpp_cia_ops", None)
    if listed is None or walk is None or any(vars(each).get(listed.__name__) is not listed for each in modules):
        return
    if hasattr(listed, "__wrapped__"):
        return
    torch = sys.modules["torch"]
    lists: dict[object, set[Any]] = {}

    @functools.wraps(listed)
    def list_once() -> set[Any]:
        composite = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        known = [len(getattr(getattr(torch.ops, name), "_dir", ())) for name in torch.ops._dir]
        registered = *composite, *known
        if registered not in lists:
            walk()
            walks._materialize_cpp_cia_ops = _walk_nothing
            try:
                lists[registered] = listed()
            finally:
                walks._materialize_cpp_cia_ops = walk
        return set(lists[registered])

    for each in modules:
        setattr(each, listed.__name__, list_once)
    # A lowering compiles the Python source of a graph after each of 90 passes, of which few change it.
    sys.modules["torch.fx.graph_module"].compile = compiled_once
    compile_when_read(sys.modules["torch.fx.graph_module"])
    # `collections.abc.Callable[...]` makes an object on each evaluation; `typing.Callable[...]` keeps those it has made.
    sys.modules["torch._ops"].Callable = typing.Callable
    overriding = getattr(programs, "_override_composite_implicit_decomp", None)
    rules = getattr(sys.modules.get("torch._subclasses.fake_impls"), "op_implementations_dict", None)
    if overriding is not None and rules is not None:
        programs._override_composite_implicit_decomp = keeping_tables(overriding, rules)


def compiled_once(source: str, name: str, mode: str, **more: Any) -> Any:
    """Return the code of a source. Equal sources have the same code, with the name of the first of them."""
    key = source, mode, *more.items()
    code = _CODES.pop(key, None) or compile(source, name, mode, **more)
    _CODES[key] = code
    if len(_CODES) > MOST_CODES:
        del _CODES[next(iter(_CODES))]
    return code


class _WhenRead:
    """An attribute of graph modules that torch sets when it compiles the source of a graph. Reading it compiles."""

    def __init__(self, name: str, compile_source: Callable[[Any], Any], module: Callable[[], Any]) -> None:
        self.name, self.compile_source, self.module = name, compile_source, module

    def __get__(self, instance: Any, owner: type) -> Any:
        module = self.module() if instance is None else instance
        if module is None:
            return self
        self.compile_source(module)
        return getattr(owner if instance is None else instance, self.name)


class _Source:
    """Torch's ``PythonCode`` of a graph module. Reading from it compiles."""

    def __init__(self, compile_source: Callable[[], Any]) -> None:
        self._compile_source = compile_source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compile_source(), name)


def compile_when_read(graph_modules: Any) -> None:
    """Let torch compile the Python source of a graph when its ``forward`` or its source is read, not after each pass.

    Most passes interpret the graph: nobody reads nine in ten of the sources of a lowering.
    """
    kind = graph_modules.GraphModule
    compile_now = kind.recompile

    def compile_source(module: Any) -> Any:
        own = type(module)
        if isinstance(vars(own).get("forward"), _WhenRead):
            del own.forward
        return compile_now(module)

    @functools.wraps(compile_now)
    def recompile(module: Any) -> Any:
        own = type(module)
        if own.recompile is not recompile:
            return compile_now(module)
        for name in SOURCE:
            vars(module).pop(name, None)
        if isinstance(module._graph._codegen, graph_modules._PyTreeCodeGen):
            shown = module._graph._codegen.pytree_info
            module._in_spec, module._out_spec = shown.in_spec, shown.out_spec
        if "_wrapped_call" not in vars(own):
            own._wrapped_call = graph_modules._WrappedCall(own, vars(own).get("__call__"))
        own.__call__ = _call_wrapped
        own.forward = _WhenRead("forward", compile_source, weakref.ref(module))
        module._recompile_submodules()
        return _Source(functools.partial(compile_source, module))

    reduce = kind.__reduce__

    @functools.wraps(reduce)
    def compiled_and_reduced(module: Any) -> Any:
        assert module.code is not None
        return reduce(module)

    for name in SOURCE:
        setattr(kind, name, _WhenRead(name, compile_source, _nothing))
    kind.recompile, kind.__reduce__ = recompile, compiled_and_reduced


def _call_wrapped(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module._wrapped_call(module, *args, **kwargs)


def _nothing() -> None:
    """Stand in for the graph module of a class that has many."""


def _walk_nothing() -> None:
    """Stand in for the walk through torch's registry, which each of its 40 namespaces repeats, while a list is made."""


def keeping_tables(overriding: Overriding, rules: dict[Any, Any]) -> Overriding:
    """Return torch's ``overriding`` with a memory: it keeps the tables that it fills for an operator for the next time.

    The tables are the Python kernels of the operator, and its entry in ``rules``, torch's rules for fake tensors. An operator with
    another decomposition, or with other tables of its own, gets new ones from torch.
    """
    filled: dict[Any, tuple[tuple[Callable[..., Any], Kernels, Any], Kernels, Any]] = {}

    @functools.wraps(overriding)
    @contextmanager
    def overridden(decompositions: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
        own = {op: (made, dict(op.py_kernels), rules.get(op)) for op, made in decompositions.items()}
        new = {op: made for op, made in decompositions.items() if op not in filled or filled[op][0] != own[op]}
        with overriding(new):
            filled.update({op: (own[op], dict(op.py_kernels), rules[op]) for op in new})
            known = own.keys() - new.keys()
            for op in known:
                _, kernels, rules[op] = filled[op]
                _set_kernels(op, kernels)
            try:
                yield
            finally:
                for op in known:
                    _set_kernels(op, own[op][1])
                    rules.pop(op, None)

    return overridden


def _set_kernels(op: Any, kernels: Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
