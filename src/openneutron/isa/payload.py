# SPDX-License-Identifier: BSD-3-Clause
"""Compose and parse the delegate payload of a ``.pte``: ``parse(compose(x)) == x``.

The layout is the one that ExecuTorch's NXP delegate reads. It begins with single bytes: the numbers of graph inputs,
of graph outputs, and of input arguments of the delegate call; the format of each input, then of each output; for each
input the index of its argument; for each output the index of its output argument; the version. These bytes are padded
to 16 bytes. Microcode, weights and kernels follow, each padded to 16 bytes too.

Programs with NXP's microcode (``NxpProgram``) are carried in the same payload. Only their published words are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.microcode import Program, Record, aligned, record, refuse_foreign
from openneutron.isa.rows import HEADER, MAGIC

PLACES = {
    0: {
        "microcode_size": 6,
        "weights_size": 7,
        "scratch_size": 9,
        "prefetch_size": 10,
        "input_count": 11,
        "output_count": 12,
    },
    1: {
        "microcode_size": 6,
        "weights_size": 7,
        "scratch_size": 9,
        "profile_size": 10,
        "debug_size": 11,
        "prefetch_size": 12,
        "input_count": 13,
        "output_count": 14,
    },
}
"""The indices of the header's words that ExecuTorch's NXP delegate reads, by the version of the payload
(executorch/backends/nxp/runtime/NeutronBackend.cpp)."""

PROFILE_MASK = 0x7FFFFFFF
"""The bits of the profile's size word that hold the size. ExecuTorch's delegate ignores the highest bit."""

WORDS = 15


@dataclass(frozen=True, slots=True)
class NxpProgram(Program):
    """The three blobs of a NeutronGraph from NXP's converter. ``payload_version`` is 0 or 1; version 1 has buffers for
    a profile and for debugging."""

    payload_version: int = 1

    @property
    def header(self) -> Record:
        """Return a header record with the published words under this project's names, and 0 for all other words.
        ``format_version`` is the second word."""
        words = [int.from_bytes(self.microcode[4 * at : 4 * at + 4], "little") for at in range(WORDS)]
        known = {name: words[place] for name, place in PLACES[self.payload_version].items()}
        known |= {"magic": words[0], "format_version": words[1], "kernels_size": len(self.kernels)}
        if "profile_size" in known:
            known["profile_size"] &= PROFILE_MASK
        return record(rows.HEADER, **{name: known.get(name, 0) for name in rows.HEADER.names})

    def verify(self) -> None:
        """Raise InvalidProgramError if the microcode is shorter than the published words or has another magic word,
        or if the microcode or the weights have fewer bytes than the header states. The kernels blob is not checked:
        the header has no published size of it."""
        if len(self.microcode) < 4 * WORDS:
            raise InvalidProgramError(
                f"microcode: it is {len(self.microcode)} bytes; its header alone has {4 * WORDS}."
            )
        header = self.header
        if header["magic"] != rows.MAGIC:
            raise InvalidProgramError(
                f"microcode: its first word is 0x{header['magic']:08x}; microcode starts with 0x{rows.MAGIC:08x}."
            )
        for name, blob in (("microcode", self.microcode), ("weights", self.weights)):
            if header[f"{name}_size"] > len(blob):
                raise InvalidProgramError(
                    f"program: its {name} is {len(blob)} bytes; its header says {header[f'{name}_size']}. The file is truncated."
                )


VERSION = 1
"""The version of a payload whose microcode header has the second public layout (profile and debug sizes)."""

LIMIT = 256
"""Counts and map entries are below this number, because each is a single byte."""


class Format(IntEnum):
    """The layout of an input or an output in memory."""

    CONTIGUOUS = 0
    """Elements in the order of the dimensions; NXP calls this layout formatless."""
    CHANNELS_LAST = 1
    """Elements in the order batch, spatial dimensions, channels. The delegate transposes a contiguous tensor on the CPU."""
    LEADING = 2
    """For inputs only: contiguous, with as many elements as the caller gives, up to those of the program's input. The
    rest of the input is zero."""
    SPAN = 3
    """For inputs of two int64 only: the first comes from the caller, and the second is the number of elements of the
    input that is ``LEADING``."""


OUTPUT_FORMATS = frozenset({Format.CONTIGUOUS, Format.CHANNELS_LAST})
"""The formats that an output can have."""

SPAN_BYTES = 16
"""The size of an input that is ``SPAN``."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The contents of a delegate payload: a program, and how its inputs and outputs map to those of the delegate
    call. Formats (memory layouts) and maps have an entry for each input or output of the program, in its order."""

    program: Program = field(repr=False)
    input_formats: tuple[Format, ...]
    output_formats: tuple[Format, ...]
    input_map: tuple[int, ...]
    """The index of the delegate call's argument for each input of the program."""
    output_map: tuple[int, ...]
    """The index of the delegate call's output for each output of the program."""
    arguments: int
    """The number of input arguments of the delegate call."""

    def verify(self) -> None:
        """Raise InvalidProgramError if counts, maps and the program's blobs do not fit each other."""
        self.program.verify()
        header = self.program.header
        for name, formats, places, count, bound in (
            ("input", self.input_formats, self.input_map, header["input_count"], self.arguments),
            ("output", self.output_formats, self.output_map, header["output_count"], header["output_count"]),
        ):
            if len(formats) != count or len(places) != count:
                raise InvalidProgramError(
                    f"payload: it has {len(formats)} formats and {len(places)} map entries for {name}s; its microcode has "
                    f"{count} {name}s."
                )
            _check_map(name, places, bound)
        _check_span(self.input_formats)

    def compose(self) -> bytes:
        """Return the bytes of the payload. Raises InvalidProgramError as ``verify`` does."""
        self.verify()
        return pack(
            self.program, self.input_formats, self.output_formats, self.input_map, self.output_map, self.arguments
        )


def pack(
    program: Program,
    input_formats: Sequence[Format],
    output_formats: Sequence[Format],
    input_map: Sequence[int],
    output_map: Sequence[int],
    arguments: int,
    version: int = VERSION,
) -> bytes:
    """Return the bytes of a payload of this ``version``. ``program`` may be any compiler's; ``Payload`` describes the
    other arguments.

    Raises InvalidProgramError if there are more inputs, outputs or arguments than a byte can count, or if a map has
    an entry twice or out of range.
    """
    _check_map("input", input_map, arguments)
    _check_map("output", output_map, len(output_map))
    header = bytes([len(input_formats), len(output_formats), arguments])
    header += bytes([*input_formats, *output_formats, *input_map, *output_map, version])
    blobs = (header, program.microcode, program.weights, program.kernels)
    return b"".join(blob + bytes(aligned(len(blob)) - len(blob)) for blob in blobs)


def _check_map(name: str, places: Sequence[int], bound: int) -> None:
    if len(places) >= LIMIT or bound >= LIMIT:
        raise InvalidProgramError(
            f"payload: {max(len(places), bound)} {name}s; it has room for {LIMIT - 1}. Delegate a smaller part of the model."
        )
    if len(set(places)) != len(places) or not set(places) <= set(range(bound)):
        raise InvalidProgramError(f"payload: the {name} map {tuple(places)} does not fit {bound} arguments.")


def _check_span(formats: Sequence[Format]) -> None:
    leading = formats.count(Format.LEADING)
    if Format.SPAN in formats and leading != 1:
        raise InvalidProgramError(
            f"payload: an input counts the elements of another one, and {leading} inputs have a number of elements that varies. "
            "Exactly one is needed."
        )


@dataclass(frozen=True, slots=True)
class _Heading:
    """The bytes of a payload before the microcode. ``start`` is the offset of the microcode."""

    input_formats: tuple[Format, ...]
    output_formats: tuple[Format, ...]
    input_map: tuple[int, ...]
    output_map: tuple[int, ...]
    arguments: int
    version: int
    start: int

    def payload(self, program: Program) -> Payload:
        """Return the verified payload with this program."""
        made = Payload(
            program, self.input_formats, self.output_formats, self.input_map, self.output_map, self.arguments
        )
        made.verify()
        return made


def _start(blob: bytes, words: int) -> tuple[int, int]:
    """Return the size of the heading and the offset of the microcode, which must have at least ``words`` words."""
    if len(blob) < 4:
        raise InvalidProgramError(f"payload: it is {len(blob)} bytes; its header alone has at least 4.")
    size = 4 + 2 * (blob[0] + blob[1])
    start = aligned(size)
    if len(blob) < start + 4 * words:
        raise InvalidProgramError(f"payload: it is {len(blob)} bytes; its headers alone have {start + 4 * words}.")
    return size, start


def _heading(blob: bytes, size: int, versions: Sequence[int]) -> _Heading:
    inputs, outputs, arguments = blob[:3]
    start, version = aligned(size), blob[size - 1]
    if version not in versions:
        known = " and ".join(map(str, versions))
        raise InvalidProgramError(
            f"payload: its version is {version}; this one reads version {known}. Compile the model again."
        )
    if int.from_bytes(blob[start : start + 4], "little") != MAGIC:
        raise InvalidProgramError("payload: it holds no Neutron microcode.")
    formats = blob[3 : 3 + inputs + outputs]
    maps = blob[3 + inputs + outputs : size - 1]
    for name, values, accepted in (
        ("input", formats[:inputs], frozenset(Format)),
        ("output", formats[inputs:], OUTPUT_FORMATS),
    ):
        if not accepted.issuperset(values):
            raise InvalidProgramError(
                f"payload: it has an {name} of format {max(values)}; 0 to {max(accepted)} are known."
            )
    return _Heading(
        tuple(Format(value) for value in formats[:inputs]),
        tuple(Format(value) for value in formats[inputs:]),
        tuple(maps[:inputs]),
        tuple(maps[inputs:]),
        arguments,
        version,
        start,
    )


def microcode_of(blob: bytes) -> bytes:
    """Return the bytes of a payload from the start of its microcode. Raises InvalidProgramError if there are too few
    bytes for a payload; nothing else is checked."""
    return blob[_start(blob, 2)[1] :]


def parse(blob: bytes) -> Payload:
    """Return the payload in these bytes. Raises InvalidProgramError if they are damaged or no payload."""
    size, start = _start(blob, len(HEADER.fields))
    refuse_foreign(blob[start:])
    heading = _heading(blob, size, (VERSION,))
    blobs = []
    for name in ("microcode_size", "weights_size", "kernels_size"):
        at = heading.start + 4 * HEADER.places[name]
        stated = int.from_bytes(blob[at : at + 4], "little")
        if start + stated > len(blob):
            raise InvalidProgramError(
                f"payload: it is {len(blob)} bytes; its {name.removesuffix('_size')} ends at {start + stated}. "
                "The file is truncated."
            )
        blobs.append(blob[start : start + stated])
        start += aligned(stated)
    return heading.payload(Program(*blobs))


def parse_nxp(blob: bytes) -> Payload:
    """Return the payload in these bytes, with a program from NXP's converter (``NxpProgram``) whose kernels blob
    extends to the end.

    Raises InvalidProgramError if the bytes are damaged or no payload.
    """
    size, start = _start(blob, WORDS)
    heading = _heading(blob, size, tuple(PLACES))
    places = PLACES[heading.version]
    sizes = (
        int.from_bytes(blob[start + 4 * places[name] :][:4], "little") for name in ("microcode_size", "weights_size")
    )
    microcode_size, weights_size = sizes
    weights = start + aligned(microcode_size)
    kernels = weights + aligned(weights_size)
    program = NxpProgram(
        blob[start : start + microcode_size], blob[weights : weights + weights_size], blob[kernels:], heading.version
    )
    return heading.payload(program)
