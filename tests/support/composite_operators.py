# SPDX-License-Identifier: BSD-3-Clause
"""Shorten two steps of torch that each export and each lowering repeat, with the same results."""

from __future__ import annotations

import functools
import sys
import typing
from typing import Any

LISTS = ("torch._export.utils", "torch.export.decomp_utils", "torch.export.exported_program")
"""The modules with a name for torch's function that lists the composite operators."""


def shorten() -> None:
    """Have torch walk its registry once for each list of composite operators, not once for each of its 40 namespaces,
    and keep the type annotations that it makes for each kernel that it registers.

    Nothing changes where the modules are not imported, or have other functions.
    """
    if not all(name in sys.modules for name in LISTS):
        return
    walks, *_ = modules = [sys.modules[name] for name in LISTS]
    listed = getattr(walks, "_collect_all_valid_cia_ops", None)
    walk = getattr(walks, "_materialize_cpp_cia_ops", None)
    if listed is None or walk is None or any(vars(each).get(listed.__name__) is not listed for each in modules):
        return
    if hasattr(listed, "__wrapped__"):
        return

    @functools.wraps(listed)
    def list_after_one_walk() -> Any:
        walk()
        walks._materialize_cpp_cia_ops = _walk_nothing
        try:
            return listed()
        finally:
            walks._materialize_cpp_cia_ops = walk

    for each in modules:
        setattr(each, listed.__name__, list_after_one_walk)
    # `collections.abc.Callable[...]` makes an object on each evaluation; `typing.Callable[...]` keeps those it has made.
    sys.modules["torch._ops"].Callable = typing.Callable


def _walk_nothing() -> None:
    """Stand in for the walk while a list is made."""
