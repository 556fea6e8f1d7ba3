# SPDX-License-Identifier: BSD-3-Clause
"""The forms of files that hold a model, one row for each form. A new form is a row and its reader
(docs/how-to/add-an-input-form.md)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from openneutron.device.files import FOLDER, existing, obstacle
from openneutron.device.third_party import needs_pytorch
from openneutron.errors import InvalidModelError, MissingToolError
from openneutron.options import LoadingOptions

MAGIC_BYTES = 16
"""The bytes of a file that are read for the magic bytes of a form."""


MOST_MEMBER_BYTES = 1 << 26
"""The largest member of an archive whose content is looked at."""


class Kind(Enum):
    """The kind of a form's content, which decides how a file of the form is used."""

    LITERT = ".tflite"
    """A graph of LiteRT's operators. The reader returns a LiteRTModel, which is compiled to a ``.tflite`` without
    torch."""

    PYTORCH = ".pte"
    """A program of PyTorch. The reader returns a module or an ExportedProgram, which is compiled to a ``.pte``."""

    COMPILED = ""
    """A program that is compiled already."""

    OTHER = "other"
    """A file that no reader takes."""

    @property
    def result(self) -> str:
        """Return the suffix of the compiled file; empty for COMPILED. For OTHER, which is not compiled, it is the
        word ``other``."""
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Form:
    """A form of files.

    Attributes:
        suffix: The usual end of a file's name; ``others`` are further ones.
        kind: The kind of the content.
        reader: ``module:function``, imported on use. The function takes the path, and raises InvalidModelError for an unusable file.
        magic: An offset in the file, and a regular expression that the bytes there match.
        member: The end of a name that a zip archive of this form has inside, or the name of a file by which a folder
            of this form is known; empty for other forms.
        content: Bytes that this member has inside; empty where its name decides.
        needs: The packages that the reader imports in addition to those that are always installed.
        extra: The extra of this package that installs ``needs``.
        loading: The names of the fields of LoadingOptions that the reader takes in addition to the path.
        library: The package whose models in memory are read too, by the function ``object_reader`` (``module:function``) of the model, its name
            and LoadingOptions.
        suggestion: What to do with a file that is not compiled, in a program and on the command line.
    """

    suffix: str
    kind: Kind
    others: tuple[str, ...] = ()
    reader: str = ""
    magic: tuple[int, bytes] | None = None
    member: str = ""
    content: bytes = b""
    needs: tuple[str, ...] = ()
    extra: str = ""
    loading: tuple[str, ...] = ()
    library: str = ""
    object_reader: str = ""
    suggestion: tuple[str, str] = ("", "")

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Return all suffixes of the form."""
        return (self.suffix, *self.others)

    def holds(self, path: Path) -> bool:
        """Return whether the file's content is of this form. Return False where the form has no magic bytes, or the
        file can't be read."""
        if self.magic is None:
            return False
        place, wanted = self.magic
        try:
            with path.open("rb") as file:
                file.seek(place)
                found = re.match(wanted, file.read(MAGIC_BYTES), re.DOTALL) is not None
            if not found or not self.member:
                return found
            with zipfile.ZipFile(path) as archive:
                members = [item for item in archive.infolist() if item.filename.endswith(self.member)]
                return any(
                    not self.content or (item.file_size <= MOST_MEMBER_BYTES and self.content in archive.read(item))
                    for item in members
                )
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
            return False

    def read(self, path: Path, loading: LoadingOptions = LoadingOptions()) -> Any:
        """Return the model in a file. Raises InvalidModelError for an unusable file, and MissingToolError where a
        package is not installed."""
        with self._needing():
            with needs_pytorch("PyTorch models take") if self.kind is Kind.PYTORCH else nullcontext():
                function = resolve_name(self.reader)
            return function(path, **{name: getattr(loading, name) for name in self.loading})

    def read_object(self, model: object, name: str, loading: LoadingOptions = LoadingOptions()) -> Any:
        """Return what ``read`` returns, for a model of ``library`` in memory. Raises InvalidModelError for an unusable one."""
        return resolve_name(self.object_reader)(model, name, loading)

    @contextmanager
    def _needing(self) -> Iterator[None]:
        """Raise MissingToolError where an import in the block fails because a package of the form is not installed."""
        try:
            yield
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in self.needs:
                raise
            raise MissingToolError(
                f"A {self.suffix} takes {', '.join(self.needs)}; '{error.name}' is not installed: "
                f"pip install 'openneutron[{self.extra}]'."
            ) from error


_WEIGHTS_ALONE = "weights have no program"

_OLD_KERAS = "save it in Keras 3's form: keras.saving.load_model(path, compile=False).save('net.keras'); load a file of weights alone into its model"

_LFS = "it is a pointer of Git LFS, without the file's content; get the content with `git lfs pull`"

_PAGE = "it is a web page, as a failed download leaves it; download the file again"

PT2 = Form(
    ".pt2",
    Kind.PYTORCH,
    reader="openneutron.pytorch.source.exported_file:load_exported",
    magic=(0, b"PK"),
    member="models/model.json",
    loading=("trust", "imports"),
)

LITERT = Form(
    ".tflite",
    Kind.LITERT,
    reader="openneutron.litert:read",
    magic=(4, b"TFL3"),
    loading=("input_shapes",),
)

PTE = Form(
    ".pte",
    Kind.COMPILED,
    magic=(4, b"ET12"),
    suggestion=(
        "it is compiled already; compile the model that it was made from, or open it with openneutron.load",
        "it is compiled already; compile the model that it was made from, or run it with `openneutron run`",
    ),
)

ONNX = Form(
    ".onnx",
    Kind.PYTORCH,
    reader="openneutron.pytorch.onnx.read:read_onnx",
    magic=(0, rb"\x08[\x01-\x7f][\x12\x1a\x22\x28\x32\x3a\x42\xa2]"),
    needs=("onnx",),
    extra="onnx",
    loading=("input_shapes",),
)
"""ONNX's files have no magic bytes: they begin with the version of the format, and the tag of another field of ModelProto."""

KERAS = Form(
    ".keras",
    Kind.PYTORCH,
    reader="openneutron.pytorch.source.keras_file:read_keras",
    magic=(0, b"PK"),
    member="model.weights.h5",
    needs=("keras",),
    extra="keras",
    library="keras",
    object_reader="openneutron.pytorch.source.keras_file:program_of",
    loading=("trust", "imports", "input_shapes"),
)

YOLO = Form(
    ".pt",
    Kind.PYTORCH,
    reader="openneutron.pytorch.yolo:read_yolo",
    magic=(0, b"PK"),
    member="data.pkl",
    content=b"cultralytics.",
    needs=("ultralytics", "torchvision", "cv2"),
    extra="yolo",
    library="ultralytics",
    object_reader="openneutron.pytorch.yolo:staged",
    loading=("trust", "input_shapes", "head"),
)
"""A checkpoint of Ultralytics: a pickle that names its classes (``c``, the opcode GLOBAL, and the module's name)."""

PT = Form(
    ".pt",
    Kind.PYTORCH,
    others=(".pth", ".ckpt"),
    reader="openneutron.pytorch.source.pickled_file:read_pickled",
    magic=(0, b"PK"),
    member="data.pkl",
    loading=("trust", "imports", "input_shapes"),
)
"""A pickled module. Only its author's word says that loading it is safe."""

SAVED_MODEL = Form(
    "",
    Kind.LITERT,
    reader="openneutron.litert.read:read_saved_model",
    member="saved_model.pb",
    loading=("input_shapes",),
)
"""TensorFlow's SavedModel: a folder, which is known by the name of a file in it."""

SAFETENSORS = Form(
    ".safetensors",
    Kind.OTHER,
    magic=(8, rb"\{"),
    suggestion=(
        f"{_WEIGHTS_ALONE}; make the module, load the weights into it, and pass it",
        f"{_WEIGHTS_ALONE}; give them with --weights, beside file.py:function",
    ),
)

FORMS = (
    PT2,
    ONNX,
    KERAS,
    YOLO,
    PT,
    LITERT,
    PTE,
    SAFETENSORS,
    Form(".h5", Kind.OTHER, others=(".hdf5",), magic=(0, rb"\x89HDF\r\n"), suggestion=(_OLD_KERAS, _OLD_KERAS)),
    Form("a pointer of Git LFS", Kind.OTHER, magic=(0, b"version https://"), suggestion=(_LFS, _LFS)),
    Form("a web page", Kind.OTHER, magic=(0, rb"(?i)\s*<(!doctype )?html"), suggestion=(_PAGE, _PAGE)),
)
"""All forms. Messages list the suffixes of models in this order."""


def of_content(path: Path) -> Form | None:
    """Return the form that the content at ``path`` identifies: of a file, or of a SavedModel folder. None if the path
    can't be opened, or its content identifies no form."""
    problem = obstacle(path)
    if problem is not None:
        return SAVED_MODEL if problem == FOLDER and (path / SAVED_MODEL.member).is_file() else None
    return next((form for form in FORMS if form.holds(path)), None)


def form_of(path: Path) -> Form | None:
    """Return the form of a file: the one that its content identifies, otherwise the one of its suffix. None where
    neither is known."""
    return of_content(path) or next((form for form in FORMS if path.suffix in form.suffixes and not form.content), None)


def of_object(model: object) -> Form | None:
    """Return the form of a model in memory that has a reader of its own, by the package of its classes; otherwise None."""
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return next((form for form in FORMS if form.library and form.library in packages), None)


TRANSFORMERS = "config.json"
"""The file that a folder of transformers has."""


def model_form(path: Path, what: str, words: str, on_command_line: bool = False) -> Form:
    """Return the form of a model's file.

    In messages, ``what`` names a model and ``words`` lists the accepted forms. Raises InvalidModelError where the file
    does not exist, or has no form that can be compiled.
    """
    form = form_of(path)
    if form is None:
        if (path / TRANSFORMERS).is_file():
            raise InvalidModelError(
                f"'{path}' is a folder of transformers. A language model's is for openneutron.llm.export, Whisper's for "
                f"openneutron.speech.export. {what[0].upper()}{what[1:]} is {words}."
            )
        raise InvalidModelError(f"'{path}' is no model: {what} is {words}.")
    if not form.reader:
        raise InvalidModelError(
            f"'{path}': {form.suggestion[on_command_line]}. {what[0].upper()}{what[1:]} is {words}."
        )
    if form is not SAVED_MODEL:
        check_content(existing(str(path)))
    return form


def check_content(path: Path) -> None:
    """Raise InvalidModelError for a file without content, as an interrupted download or copy leaves it."""
    with suppress(OSError):
        if path.is_file() and not path.stat().st_size:
            raise InvalidModelError(f"'{path.name}' is empty: it has 0 bytes. Copy or download the file again.")


def kind_of(path: Path) -> Kind | None:
    """Return the kind of a file's form; None where the form is unknown."""
    form = form_of(path)
    return None if form is None else form.kind


def listed(forms: Iterable[Form]) -> str:
    """Return the suffixes of forms, in words.

    >>> listed(MODELS)
    '.pt2, .onnx, .keras, .pt or .tflite'
    """
    *others, last = dict.fromkeys(form.suffix for form in forms)
    return f"{', '.join(others)} or {last}" if others else last


MODELS = tuple(form for form in FORMS if form.reader)
"""The forms that can be compiled."""


def for_forms(option: str) -> str:
    """Return the suffixes of the forms that use a field of LoadingOptions, in words."""
    return listed(form for form in FORMS if option in form.loading)
