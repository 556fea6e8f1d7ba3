# SPDX-License-Identifier: BSD-3-Clause
"""Handle third-party packages: suppress warnings, report absent packages, and avoid needless garbage collections and
repeated listings."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock

from openneutron.errors import MissingToolError, OpenNeutronWarning

PACKAGES = ("torch", "torchao", "executorch")
DEMO_PACKAGES = (*PACKAGES, "sklearn")
"""sklearn is the module of the package scikit-learn."""


EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "pytorch": (("torch", "executorch", "torchao"), "PyTorch models, and running `.pte` files"),
    "demo": (("scikit-learn",), "the handwritten digits of `openneutron demo` and of the tutorials"),
    "onnx": (("onnx", "onnxscript"), "`.onnx` files, and `openneutron quantize` to them"),
    "keras": (("keras",), "`.keras` files"),
    "quantizer": (("ai-edge-quantizer",), "float `.tflite` files"),
    "yolo": (("ultralytics",), "models and `.pt` files of Ultralytics; torchvision and OpenCV come with it"),
    "coco": (("pycocotools", "pyyaml"), "the mean average precision of detectors in `openneutron evaluate`"),
    "sounds": (("scipy",), "WAV files of another sample rate than the model's"),
    "cluster": (("distributed",), "`openneutron evaluate --scheduler`: evaluations on a Dask cluster"),
    "language": (
        ("gguf", "safetensors", "tokenizers", "transformers"),
        "language models: modules and folders of transformers, GGUF files, tokenizers",
    ),
    "model-explorer": (("ai-edge-model-explorer",), "Google's Model Explorer with this project's graphs"),
}
"""The packages of each extra that users install, and the purpose of the extra. ``openneutron doctor`` and the page on
the installation show them."""


@contextmanager
def suppressed(level: int = logging.WARNING) -> Iterator[None]:
    """Suppress all warnings, and all logs up to ``level``, while the block runs. The purpose is to hide those of
    torch, torchao and ExecuTorch, on which a user can't act. Warnings of this project are shown."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", OpenNeutronWarning)
            yield
    finally:
        logging.disable(before)


@contextmanager
def older_objects_kept() -> Iterator[None]:
    """Exempt existing objects from garbage collection while the block runs.

    After the import of torch there are about a million objects. A full collection goes through all of them, and finds
    nothing. If the process has exempted objects itself, this function changes nothing.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@dataclass(slots=True)
class _ListedOnce:
    """A context manager that lets torch list its composite operators only once while blocks with it run. Blocks in
    all threads share the list.

    Without it, each decomposition of a program lists all composite operators again for each of torch's namespaces.
    That is some 70 times in a compile, and a quarter of the CPU time of a small model (torch 2.13,
    torch/_export/utils.py). The list lacks operators that are registered inside a block. This does no harm, since no
    program contains such an operator.
    """

    name: str = "_materialize_cpp_cia_ops"
    blocks: int = 0
    listing: Callable[[], None] | None = None
    lock: Lock = field(default_factory=Lock)

    def __enter__(self) -> None:
        utils = import_module("torch._export.utils")
        with self.lock:
            self.blocks += 1
            listing = getattr(utils, self.name, None)
            if self.blocks == 1 and listing is not None:
                listing()
                self.listing = listing
                setattr(utils, self.name, lambda: None)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0 and self.listing is not None:
                setattr(import_module("torch._export.utils"), self.name, self.listing)
                self.listing = None


OPERATORS_LISTED_ONCE = _ListedOnce()


@contextmanager
def needs_pytorch(what: str) -> Iterator[None]:
    """Raise MissingToolError where an import in the block fails because a package of the PyTorch extra is not
    installed."""
    with _needs(what, PACKAGES, "pip install 'openneutron[pytorch]'. An int8 .tflite compiles and runs without."):
        yield


@contextmanager
def needs_demo(what: str) -> Iterator[None]:
    """Raise MissingToolError where an import in the block fails because scikit-learn or a package of the PyTorch
    extra is not installed."""
    with _needs(what, DEMO_PACKAGES, "pip install 'openneutron[demo]'."):
        yield


@contextmanager
def _without_collections() -> Iterator[None]:
    """Suspend garbage collection while the block imports modules, which make many objects and nearly no garbage.

    If the process has exempted objects from collections (``gc.freeze``) and the block imports a module, all objects
    that exist at the end of the block are exempted too. If the block imports no new module, the exempted objects are
    not even counted. Python counts them one by one, which takes 50 ms for a million.
    """
    if not gc.isenabled():
        yield
        return
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules and gc.get_freeze_count():
            gc.freeze()
        gc.enable()


@contextmanager
def _needs(what: str, packages: tuple[str, ...], suggestion: str) -> Iterator[None]:
    try:
        with _without_collections():
            yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in packages:
            raise
        raise MissingToolError(
            f"{what} {', '.join(packages)}; '{error.name}' is not installed: {suggestion}"
        ) from error
