# SPDX-License-Identifier: BSD-3-Clause
"""Read the network in a ``.pt`` file of Ultralytics as data: nothing in the file is executed.

Such a file is a pickle of a dict with a module under ``ema`` or ``model``. torch.load with ``weights_only`` reads it. The classes of
PyTorch's and Ultralytics' layers are replaced by guarded subclasses while it is read: an instance can be made and given its
attributes, but the class can't be called, since the constructors of some layers evaluate text or download files. Everything else that a
pickle names, such as losses, paths and training settings, becomes an object without content.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError
from openneutron.pytorch.source.exported_file import TRUST

LAYERS = re.compile(r"(torch\.nn\.modules|ultralytics\.nn)(\.\w+)*")
"""The modules whose classes a network is made of."""


class _Guarded(type):
    """The class of the guarded subclasses of layers: pickles can make instances, and can't call the class."""

    def __call__(cls, *_arguments: Any, **_keywords: Any) -> NoReturn:
        raise NeedsTrust(f"it calls the class {cls.__name__}")


class NeedsTrust(Exception):
    """Raised for a file whose loading may run code that its author chose. The message is the reason."""


class _Unread:
    """An object of the file that no network needs. Its arguments and attributes are dropped."""

    name = ""

    def __init__(self, *_arguments: Any, **_keywords: Any) -> None:
        pass

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Any:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)


def read_network(path: Path, trust: bool = False) -> nn.Module:
    """Return the network in a ``.pt`` file of Ultralytics, in float32 and in eval mode.

    Nothing in the file is executed, unless ``trust`` permits it. Raises InvalidModelError where the file has no network, or can only be
    loaded by running code in it.
    """
    try:
        with suppressed():
            found = torch.load(path, map_location="cpu", weights_only=False) if trust else _loaded(path)
    except NeedsTrust as reason:
        raise InvalidModelError(
            f"'{path.name}' is not loaded: {reason}, so that loading it may run code of whoever made it. {TRUST}."
        ) from reason
    except Exception as error:  # pickle, zipfile and torch each have errors of their own
        said = " ".join(str(error).split())[:240].rstrip(".") or type(error).__name__
        raise InvalidModelError(f"'{path.name}' can't be read as a file of Ultralytics: {said}.") from error
    network = (found.get("ema") or found.get("model")) if isinstance(found, dict) else None
    if isinstance(network, _Unread):
        raise InvalidModelError(
            f"'{path.name}' is not loaded: its network is a {network.name}, which is no class of Ultralytics, so that loading it may "
            f"run code of whoever made it. {TRUST}."
        )
    if not isinstance(network, nn.Module):
        raise InvalidModelError(f"'{path.name}' has no network of Ultralytics. Pass the .pt that a training saved.")
    return network.float().eval()


def _loaded(path: Path) -> Any:
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    allowed = [(_class_for(name), name) for name in names]
    with torch.serialization.safe_globals(allowed):
        found = torch.load(path, map_location="cpu", weights_only=True)
    for name in ("ema", "model"):
        if isinstance(found, dict) and isinstance(found.get(name), nn.Module):
            _unguard(found[name])
    return found


def _class_for(name: str) -> type:
    """Return the class to read a class of the file as: a guarded layer, or an object without content."""
    module, _, own = name.rpartition(".")
    if LAYERS.fullmatch(module):
        try:
            found = getattr(importlib.import_module(module), own, None)
        except ImportError:
            found = None
        if isinstance(found, type) and issubclass(found, nn.Module):
            return _Guarded(found.__name__, (found,), {"__module__": found.__module__})
    return type("_Unread", (_Unread,), {"name": name})


def _unguard(network: nn.Module) -> None:
    """Give each layer its own class back. Raises NeedsTrust for a layer that is no layer of PyTorch or Ultralytics."""
    waiting: list[tuple[str, nn.Module]] = [("", network)]
    while waiting:
        path, layer = waiting.pop()
        for child, module in layer._modules.items():
            place = f"{path}.{child}".lstrip(".")
            if isinstance(module, _Unread):
                raise NeedsTrust(f"its layer '{place}' is a {module.name}, which is no class of Ultralytics")
            if module is not None:
                waiting.append((place, module))
        for name in [name for name, value in vars(layer).items() if isinstance(value, _Unread)]:
            delattr(layer, name)
        for hooks in [value for name, value in vars(layer).items() if name.endswith("_hooks")]:
            hooks.clear()
        if isinstance(type(layer), _Guarded):
            layer.__class__ = type(layer).__bases__[0]
