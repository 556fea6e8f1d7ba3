# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for torchvision where no build exists: timm imports it, and the models of this suite do not use it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _AnyMember(type):
    """A metaclass that gives a class every attribute, such as the members of an enumeration: the value is the name."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Unused(metaclass=_AnyMember):
    """A replacement for any class or function of torchvision. Subclasses can be made; a call is an error."""

    def __init__(self, *_arguments: Any, **_keywords: Any) -> None:
        raise RuntimeError("torchvision is not installed, and this model uses it")


class _Module(ModuleType):
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> type[_Unused]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "torchvision" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        del module


def install() -> None:
    """Let ``import torchvision`` succeed where the package is absent."""
    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(_Finder())
