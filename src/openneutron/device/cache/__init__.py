# SPDX-License-Identifier: BSD-3-Clause
"""A cache of compile results in a folder: files, compiled graphs, and the points of memory and cycles that ``pareto`` finds.

The key of an entry is a hash of all that the content of the entry depends on.
"""

from __future__ import annotations

import json
import operator
import os
import re
import struct
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from openneutron.compiler import Compiled, CompileOptions, Prepared, Report, compile_prepared
from openneutron.compiler.search.pareto import Point, pareto
from openneutron.device import files
from openneutron.errors import InvalidOptionError, InvalidProgramError
from openneutron.ir import Graph, Tensor
from openneutron.isa import Program
from openneutron.targets import Target

PACKAGE = Path(__file__).parents[2]

LIBRARIES = ("numpy", "ortools")
"""The third-party packages that affect a compiled program: with another version, the program may differ."""


class Digest:
    """A SHA-256 of a sequence of parts. The length of each part is hashed before the part, so that different sequences
    never hash the same bytes."""

    def __init__(self, *parts: str) -> None:
        import hashlib  # here, since it loads OpenSSL, which most compiles do without

        self._hash = hashlib.sha256()
        for part in parts:
            self.add(part.encode())

    def add(self, part: bytes) -> None:
        self._hash.update(len(part).to_bytes(8, "little"))
        self._hash.update(part)

    def hex(self) -> str:
        """Return the hash in hexadecimal digits."""
        return self._hash.hexdigest()


@cache
def code(*libraries: str) -> str:
    """Return a text that changes with this package's code, the version of Python, the machine's architecture, and the
    versions of ``libraries``."""
    import platform

    digest = Digest(platform.python_version(), platform.machine())
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.add(path.relative_to(PACKAGE).as_posix().encode())
        digest.add(path.read_bytes())
    return json.dumps([digest.hex(), *versions(libraries)])


def versions(libraries: Iterable[str]) -> list[str]:
    """Return the installed version of each of these packages; an empty text for a package that is not installed."""
    # Imported here: most compiles have no cache, and the import takes as long as the compile of a small model.
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in libraries:
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return found


def add_graph(digest: Digest, graph: Graph) -> None:
    """Add to the digest everything in a graph that affects the compiled program. The graph's name and the nodes'
    sources are left out, since only messages use them."""
    digest.add(repr((graph.inputs, graph.outputs)).encode())
    for state in graph.states:
        initial = None if state.initial is None else state.initial.tobytes()
        digest.add(repr((state.tensor, state.update, initial)).encode())
    for node in graph.nodes:
        digest.add(repr((node.op, node.inputs, node.outputs, sorted(node.attrs.items()))).encode())
    for name in sorted(graph.tensors):
        _add_tensor(digest, graph.tensors[name])


def _add_tensor(digest: Digest, tensor: Tensor) -> None:
    digest.add(repr((tensor.name, tensor.shape, tensor.dtype.value, _quantization(tensor))).encode())
    digest.add(b"" if tensor.data is None else tensor.data.tobytes())


def _quantization(tensor: Tensor) -> object:
    return None if tensor.quant is None else (tensor.quant.scales, tensor.quant.zero_points, tensor.quant.axis)


UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,  # also RecursionError, of deeply nested JSON
    StopIteration,
    struct.error,
    TypeError,
    ValueError,
)
"""The exceptions of code that reads an entry whose content has another form."""

Record = TypeVar("Record")


def record(kind: type[Record], facts: Any) -> Record:
    """Return an instance of the dataclass ``kind`` with the values that ``facts`` has for its fields. ``facts`` comes
    from JSON: lists become tuples.

    Raises TypeError where a field is unknown, is missing and has no default, or is of another type than the dataclass
    states. Raises ValueError where an enumeration has no such value.
    """
    key: Any = kind
    wanted = _types(key)
    if not isinstance(facts, dict) or not facts.keys() <= wanted.keys():
        raise TypeError(f"{kind.__name__}: it has other fields")
    return kind(**{name: value_of(wanted[name], value) for name, value in facts.items()})


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def value_of(wanted: Any, value: Any) -> Any:
    """Return a value from JSON in the form of the type ``wanted``: a list as a tuple, an object as a dataclass or a
    mapping. Raises TypeError or ValueError where the value does not fit the type."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return value_of(next(kind for kind in arguments if kind is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list) or (arguments[-1] is not ... and len(value) != len(arguments)):
            raise TypeError(f"{value!r:.40} is no {wanted}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(value_of(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r:.40} is no {wanted}")
        return {key: value_of(arguments[1], item) for key, item in value.items()}
    if is_dataclass(wanted) and isinstance(wanted, type):
        return record(wanted, value)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted(value)
    accepted = (float, int) if wanted is float else (wanted,)
    if type(value) not in accepted:
        raise TypeError(f"{value!r:.40} is no {wanted}")
    return value


MAGIC = b"openneutron cache 1\n"
DIGEST_BYTES = 32

LIMIT_BYTES = 1 << 30
"""The largest size of all entries together. Above it, the entries that were used least recently are removed."""

ABANDONED_SECONDS = 3600
"""The age in seconds from which on a temporary file is removed: the process that wrote it must have been killed."""

_ENTRY = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{{files.SHORT}}}\.\w+")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with entries of the cache. Files of other names in it are left alone. Temporary files of the cache
    that are older than ``ABANDONED_SECONDS`` are removed."""

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the content of an entry, and mark the entry as just used. Return None where it is absent, damaged or
        can't be read.

        Args:
            kind: What the entry is, a word.
            key: The SHA-256 of all that the content depends on, in hexadecimal digits.
        """
        path = self._path(kind, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(MAGIC) + DIGEST_BYTES
        content = data[start:]
        if data[:start] != MAGIC + _sha256(content):
            return None
        with suppress(OSError):
            os.utime(path)
        return content

    def put(self, kind: str, key: str, content: bytes) -> None:
        """Write an entry, and remove the least recently used entries beyond the limit. An entry that the folder can't
        take is left out, without an error."""
        data = MAGIC + _sha256(content) + content
        with suppress(InvalidOptionError):
            files.write({self._path(kind, key): data})
        self._trim()

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / f"{key}.{kind}"

    def _trim(self) -> None:
        entries: list[tuple[float, int, Path]] = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                with suppress(OSError):  # another process has removed it
                    if _ENTRY.fullmatch(path.name):
                        entries.append((path.stat().st_mtime, path.stat().st_size, path))
                    elif _TEMPORARY.fullmatch(path.name) and path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                        path.unlink()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                return
            with suppress(OSError):
                path.unlink()
            total -= size


def opened(folder: str | os.PathLike[str]) -> Store:
    """Return the store of a folder. An absent folder is made.

    Raises InvalidOptionError where the path is no folder, or files in it can't be read and written.
    """
    path = Path(folder)
    try:
        files.make_folder(path)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"cache: {error}") from error
    return Store(path)


_STORE: ContextVar[Store | None] = ContextVar("openneutron_cache", default=None)
"""The cache of the running compile. It is a context variable, since ExecuTorch calls the backend without a way to pass
the cache."""


@contextmanager
def caching(store: Store | None) -> Iterator[None]:
    """Use ``store`` as the cache of the compile that runs inside the block; None: no cache."""
    token = _STORE.set(store)
    try:
        yield
    finally:
        _STORE.reset(token)


def current() -> Store | None:
    """Return the cache of the running compile; None where the compile has none."""
    return _STORE.get()


def _sha256(content: bytes) -> bytes:
    import hashlib  # here, since it loads OpenSSL, which most compiles do without

    return hashlib.sha256(content).digest()


__all__ = ["Store", "caching", "current", "opened"]


Made = TypeVar("Made")


def kept(
    kind: str,
    key: Callable[[], str],
    make: Callable[[], Made],
    written: Callable[[Made], bytes],
    read: Callable[[bytes], Made | None],
) -> Made:
    """Return a value from the cache of the running compile. If the cache does not have the value, make and store it.

    ``key`` returns the key of the entry and ``make`` the value. ``written`` turns a value into the content of an entry,
    and ``read`` turns the content back into a value. ``read`` returns None for content of another form, and the value
    is then made again. Without a cache the value is always made.
    """
    store = current()
    if store is None:
        return make()
    name = key()
    content = store.get(kind, name)
    found = None if content is None else read(content)
    if found is None:
        found = make()
        store.put(kind, name, written(found))
    return found


LENGTH_BYTES = 8


def packed(facts: Mapping[str, Any], blobs: Sequence[bytes]) -> bytes:
    """Return the content of an entry: 8 bytes with the length of a JSON text, little-endian, the text, and the blobs.
    The text has ``facts`` and, as ``sizes``, the sizes of the blobs.

    Raises TypeError where a fact has no form in JSON.
    """
    header = json.dumps({**facts, "sizes": [len(blob) for blob in blobs]}, default=operator.index).encode()
    return b"".join((len(header).to_bytes(LENGTH_BYTES, "little"), header, *blobs))


def unpacked(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the facts and the blobs of an entry that ``packed`` made. Raises one of UNREADABLE for content of another
    form."""
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    facts = json.loads(content[LENGTH_BYTES:start])
    blobs = []
    for size in facts.pop("sizes"):
        blobs.append(content[start : start + size])
        start += size
    return facts, blobs


KIND = "program"


def compiled(graph: Graph, first_stages: Callable[[], Prepared], target: Target, options: CompileOptions) -> Compiled:
    """Return a compiled graph, from the cache of the running compile if the entry is there. Raises as
    ``compile_prepared`` does.

    ``first_stages`` returns the prepared graph, and is called only if there is no entry. A result from the cache has no
    schedule.
    """
    return kept(
        KIND,
        lambda: key_of(graph, target, options),
        lambda: compile_prepared(first_stages(), target, options),
        written_compiled,
        lambda content: read_compiled(content, graph),
    )


def key_of(graph: Graph, target: Target, options: CompileOptions, kind: str = KIND) -> str:
    """Return the key of a graph's entry: a hash of the entry's kind, this package's code, the target, the options and
    the graph."""
    values = json.dumps(options.to_dict(), sort_keys=True, default=operator.index)
    digest = Digest(kind, code(*LIBRARIES), repr(target), values)
    add_graph(digest, graph)
    return digest.hex()


def written_compiled(made: Compiled) -> bytes:
    """Return the entry of a compiled graph."""
    program = made.program
    return packed({"report": asdict(made.report)}, (program.microcode, program.weights, program.kernels))


def read_compiled(content: bytes, graph: Graph) -> Compiled | None:
    """Return the compiled graph of an entry; None where the entry cannot be read by this version."""
    try:
        facts, blobs = unpacked(content)
        program = Program(*blobs)
        program.verify()
        header = program.header
        if (header["input_count"], header["output_count"]) != (len(graph.inputs), len(graph.outputs)):
            return None
        return Compiled(program, graph, record(Report, facts["report"]))
    except (*UNREADABLE, InvalidProgramError):
        return None


FRONT = "front"


def front(graph: Graph, target: Target, options: CompileOptions) -> tuple[Point, ...]:
    """Return the result of ``pareto`` for a graph, from the cache of the running compile if the entry is there."""
    return kept(
        FRONT,
        lambda: key_of(graph, target, options, FRONT),
        lambda: pareto(graph, target, options),
        written_front,
        read_front,
    )


def written_front(points: tuple[Point, ...]) -> bytes:
    """Return the entry of a graph's points."""
    return json.dumps([(int(point.sram_bytes), int(point.cycles)) for point in points]).encode()


def read_front(data: bytes) -> tuple[Point, ...] | None:
    """Return the points of an entry; None where the entry cannot be read by this version."""
    try:
        points = tuple(Point(*map(int, item)) for item in json.loads(data))
        return points or None
    except UNREADABLE:
        return None
