# SPDX-License-Identifier: BSD-3-Clause
"""Recognize the kinds of files that PyTorch writes, without importing PyTorch and without loading a pickle."""

from __future__ import annotations

import pickletools
import zipfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of what torch.save writes with ``_use_new_zipfile_serialization=False``: its magic number as a pickle."""

MOST_BYTES = 1 << 26
"""The largest pickle that is read. The tensors of a file lie beside it."""

OF_TENSORS = (
    "torch._utils.",
    "torch._tensor.",
    "torch.storage.",
    "torch.serialization.",
    "collections.",
    "_codecs.",
    "numpy.",
)
"""The beginnings of the names in a pickle of tensors and containers of them."""

OF_TENSORS_TOO = ("torch.Size", "torch.device", "torch.dtype", "torch.nn.parameter.Parameter", "builtins.set")


class Kind(Enum):
    """The kind of a file; the value is what a message says of it."""

    TORCHSCRIPT = "is a TorchScript file"
    WEIGHTS = "has weights without a program (a state dict)"
    MODULE = "has a pickled module"
    OTHER_VERSION = "is damaged, or of another version of PyTorch"
    OTHER = "is no file of PyTorch's, or damaged"


@dataclass(frozen=True, slots=True)
class PickledFile:
    """A file of torch.save. ``classes`` has the dotted names of classes and functions that its pickle names, in order, without those of tensors
    and containers."""

    kind: Kind
    classes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the kind for a message, such as ``has a pickled module of 'net.Net'``."""
        return f"{self.kind.value} of '{self.classes[0]}'" if self.classes else self.kind.value


def what_it_is(path: Path) -> PickledFile:
    """Return the kind of a file. The names in its archive and in its pickle decide; nothing in it is executed."""
    try:
        with path.open("rb") as file:
            if file.read(len(LEGACY)) == LEGACY:
                return _of_pickle(LEGACY + file.read(MOST_BYTES))
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            if "constants.pkl" in names and any(name.startswith("code/") for name in names):
                return PickledFile(Kind.TORCHSCRIPT)
            if "data.pkl" not in names:
                return PickledFile(Kind.OTHER_VERSION)
            with archive.open(names["data.pkl"]) as pickle:
                return _of_pickle(pickle.read(MOST_BYTES))
    except (OSError, ValueError, NotImplementedError, RuntimeError, EOFError, zipfile.BadZipFile):
        return PickledFile(Kind.OTHER)


def _of_pickle(data: bytes) -> PickledFile:
    """Return the kind of a file whose pickle is ``data``."""
    try:
        named = _named(data)
    except Exception:  # pickletools declares none of what damaged bytes make it raise
        return PickledFile(Kind.OTHER_VERSION)
    classes = tuple(
        dict.fromkeys(
            name
            for name in named
            if not name.startswith(OF_TENSORS) and name not in OF_TENSORS_TOO and not _is_type_of_torch(name)
        )
    )
    return PickledFile(Kind.MODULE if classes else Kind.WEIGHTS, classes)


def _is_type_of_torch(name: str) -> bool:
    """Return whether a name is a type of torch's storages or numbers, such as ``torch.FloatStorage`` or ``torch.float32``."""
    module, _, last = name.rpartition(".")
    return module == "torch" and (last.endswith("Storage") or last[0].islower())


def _named(data: bytes) -> list[str]:
    """Return the dotted names that pickles one after another refer to."""
    found: list[str] = []
    while data[:1] == b"\x80":
        texts: list[str] = []
        memo: list[str] = []  # protocol 4 numbers what it keeps in order
        end, last = 0, ""
        for opcode, argument, place in pickletools.genops(data):
            end = (place or 0) + 1
            if opcode.name == "GLOBAL":
                found.append(str(argument).replace(" ", "."))
            elif opcode.name == "STACK_GLOBAL":
                found.append(".".join(texts[-2:]))
            elif opcode.name == "MEMOIZE":
                memo.append(last)
            elif opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int) and argument < len(memo):
                texts.append(memo[argument])
            last = str(argument) if "UNICODE" in opcode.name else ""
            if last:
                texts.append(last)
        data = data[end:]
    return found
