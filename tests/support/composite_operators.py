# SPDX-License-Identifier: BSD-3-Clause
"""Shorten eight steps of torch that each export and each lowering repeat, with the same results."""

from __future__ import annotations

import functools
import os
import sys
import traceback
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
    patch_in_place(torch.nn.Module, sys.modules["torch.fx._symbolic_trace"])
    keep_frames(sys.modules["torch.utils._traceback"])
    # Nothing changes the origin of a node. Torch copies its whole history for each node that is made of it.
    sys.modules["torch.fx.traceback"].NodeSource.__deepcopy__ = _itself
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


PATCHED = ("__call__", "__getattr__")
"""The methods of all modules that torch replaces while it traces one."""

CAPTURED = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module", "torch._dynamo.variables.user_defined")
"""The modules of torch that compare these methods with those of the time of their import, as ``unpatched_nn_module_call``."""


def patch_in_place(base: Any, tracing: Any) -> None:
    """Let torch replace two methods of ``torch.nn.Module`` for the time of a trace without a change of the class.

    A change of a class takes as long as it has subclasses: 0.1 ms with those of torch alone, and each graph module has a class.
    """
    patched = {name: getattr(base, name) for name in PATCHED}
    for name, own in list(patched.items()):
        setattr(base, name, _replaceable(patched, name, own))
        for module in filter(None, map(sys.modules.get, CAPTURED)):
            captured = f"unpatched_nn_module_{name.strip('_')}"
            if getattr(module, captured, None) is own:
                setattr(module, captured, getattr(base, name))
    kind = tracing._PatchedFnSetAttr
    change, restore, present = kind.patch, kind.revert, tracing._Patcher.patch_method

    def patch(item: Any) -> None:
        if item.frame_dict is base and item.fn_name in patched:
            patched[item.fn_name] = item.new_fn
        else:
            change(item)

    def revert(item: Any) -> None:
        if item.frame_dict is base and item.fn_name in patched:
            patched[item.fn_name] = item.orig_fn
        else:
            restore(item)

    @functools.wraps(present)
    def patch_method(patcher: Any, cls: type, name: str, new: Any, deduplicate: bool = True) -> None:
        """Add a replacement, with the one that is in force as what it replaces."""
        if cls is not base or name not in patched:
            present(patcher, cls, name, new, deduplicate)
            return
        new.__fx_already_patched = deduplicate
        if not getattr(patched[name], "__fx_already_patched", False):
            patcher.patches_made.append(kind(base, name, patched[name], new))
            patcher.patches_made[-1].patch()

    kind.patch, kind.revert, tracing._Patcher.patch_method = patch, revert, patch_method


def _replaceable(patched: Mapping[str, Callable[..., Any]], name: str, own: Any) -> Callable[..., Any]:
    """Return a method that calls the one in force. Its frame is one of torch's file, which is in no stack trace of a node."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return patched[name](*args, **kwargs)

    call.__code__ = call.__code__.replace(co_filename=sys.modules["torch.nn.modules.module"].__file__, co_name=name)
    return functools.wraps(own)(call)


def keep_frames(tracebacks: Any) -> None:
    """Let torch read the line of a frame in an installed package once. Each node that is traced has a stack of a hundred."""
    make = tracebacks._extract_symbolized_tb
    installed = f"{os.sep}site-packages{os.sep}"
    frames: dict[tuple[str, int, str], traceback.FrameSummary] = {}

    @functools.wraps(make)
    def extract(symbolized: list[dict[str, Any]], skip: int) -> traceback.StackSummary:
        found = traceback.StackSummary()
        for each in reversed(symbolized[skip:]):
            key = each["filename"], each["line"], each["name"]
            frame = frames.get(key)
            if frame is None:
                frame = traceback.FrameSummary(*key)
                if installed in key[0]:
                    frames[key] = frame
            found.append(frame)
        return found

    tracebacks._extract_symbolized_tb = extract


def _itself(value: Any, _memo: object) -> Any:
    return value


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
    filled: dict[Any, tuple[Callable[..., Any], Kernels, Any, Kernels, Any]] = {}

    @functools.wraps(overriding)
    @contextmanager
    def overridden(decompositions: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
        new, known = {}, []
        for op, made in decompositions.items():
            found = filled.get(op)
            if found and found[0] == made and found[2] == rules.get(op) and found[1] == op.py_kernels:
                known.append((op, found))
            else:
                new[op] = made
        own = {op: (dict(op.py_kernels), rules.get(op)) for op in new}
        with overriding(new):
            filled.update({op: (made, *own[op], dict(op.py_kernels), rules[op]) for op, made in new.items()})
            for op, (_, _, _, kernels, rule) in known:
                rules[op] = rule
                _set_kernels(op, kernels)
            try:
                yield
            finally:
                for op, (_, kernels, *_) in known:
                    _set_kernels(op, kernels)
                    rules.pop(op, None)

    return overridden


def _set_kernels(op: Any, kernels: Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
