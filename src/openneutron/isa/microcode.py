# SPDX-License-Identifier: BSD-3-Clause
"""Encode and decode programs, ``decode(encode(x)) == x``, and list the facts of their operators and the steps of a run.

Layout (docs/microcode.md): header, bindings, buffers, states, operator offsets, operators, code; 32-bit little-endian words.
An operator is one word (kernel id in bits 0 to 15, words that follow in bits 16 to 31) and its parameter block; an
instruction is one word (opcode in bits 0 to 15, words that follow in bits 16 to 31) and its fields.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.kernels.row import Row
from openneutron.isa.rows import ALIGNMENT

NAMES_TITLE = "openneutron names 1"

MOST_UNCOVERED_BYTES = 1 << 16
"""The largest number of bytes of the persistent area outside of all states, and of the profile buffer outside of all
events. The compiler leaves no such bytes; the bound is arbitrary."""

PROFILE_EVENT_BYTES = 16
"""The size of NeutronEvent of NeutronDriver.h, which the driver writes to the profile buffer for each kernel call."""


@dataclass(frozen=True, slots=True)
class Record:
    """The values of the words of one row: a header, a buffer, an operator's parameter block, or an instruction."""

    row: Row
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.values) == len(self.row.fields), f"{self.row.name} takes {len(self.row.fields)} words"
        # A value in this range fits any word.
        if self.values and (min(self.values) < 0 or max(self.values) >= 2**31):
            for column, value in zip(self.row.fields, self.values, strict=True):
                column.check(value)

    def __getitem__(self, name: str) -> int:
        return self.values[self.row.places[name]]

    def __str__(self) -> str:
        return self.row.name + "".join(
            f" {column.name}={value}" for column, value in zip(self.row.fields, self.values, strict=True)
        )


_NEW = object.__new__
_SET_ROW, _SET_VALUES = (vars(Record)[name].__set__ for name in ("row", "values"))


def record(row: Row, **values: int) -> Record:
    """Return a record of ``row`` with these values by field name. Every field must be given."""
    assert values.keys() == set(row.names), f"{row.name}: {sorted(set(row.names) ^ values.keys())} missing or unknown"
    return Record(row, tuple(int(values[name]) for name in row.names))


def base(kind: str, index: int = 0) -> int:
    """Return the base word that denotes a memory: input or output number ``index``, or another kind of ``rows.BASES``."""
    return rows.BASES.index(kind) | index << 8


def base_text(word: int) -> str:
    """Return a base word as text, for instance ``INPUT0`` or ``SCRATCH``."""
    kind, index = word & 0xFF, word >> 8
    name = rows.BASES[kind] if kind < len(rows.BASES) else f"BASE{kind}?"
    return f"{name}{index}" if name in ("INPUT", "OUTPUT") else name


@dataclass(frozen=True, slots=True)
class Microcode:
    """The records of a program: before it is encoded, or after it is decoded. ``operators`` are the kernels with
    their parameters, and ``code`` the instructions. ``far_size`` is the size of the buffer in a third memory region."""

    inputs: tuple[Record, ...]
    outputs: tuple[Record, ...]
    buffers: tuple[Record, ...]
    operators: tuple[Record, ...]
    code: tuple[Record, ...]
    scratch_size: int
    prefetch_size: int = 0
    profile_size: int = 0
    target: int = 0
    cycles: int = 0
    names: tuple[str, ...] = ()
    """The name of each operator. Names are in the kernels blob, which the driver does not read."""
    states: tuple[Record, ...] = ()
    state_size: int = 0
    far_size: int = 0

    def region_size(self, kind: str) -> int:
        """Return the size of a buffer of ``rows.REGIONS`` in bytes."""
        sizes = self.scratch_size, self.prefetch_size, self.far_size
        return sizes[rows.REGIONS.index(kind)]


@dataclass(frozen=True, slots=True)
class Program:
    """The three blobs of a program, as ExecuTorch's NXP delegate expects them. The size of each is a multiple of 16
    bytes."""

    microcode: bytes = field(repr=False)
    weights: bytes = field(repr=False)
    kernels: bytes = field(repr=False)

    @property
    def header(self) -> Record:
        """Return the header's words; raises InvalidProgramError for a blob that is no microcode of ours, or of
        another format version."""
        return _read_header(self.microcode)

    @property
    def scratch_size(self) -> int:
        return self.header["scratch_size"]

    @property
    def state_size(self) -> int:
        """Return the bytes of the persistent area; 0 for a program without state."""
        return self.header["state_size"]

    def verify(self) -> None:
        """Raise InvalidProgramError as ``verified_header`` does."""
        self.verified_header()

    def verified_header(self, checksums: bool = True) -> Record:
        """Return the header's words.

        Raises InvalidProgramError in four cases: the microcode is not this project's; sizes or checksums do not fit
        the header; the header asks for a profile buffer or a persistent area (the memory of states) that is much
        larger than a run needs; the header asks for a far buffer (memory in a third region) that the program does not
        use. Without ``checksums``, the checksums are not compared.
        """
        header = self.header
        for name, blob in (("microcode", self.microcode), ("weights", self.weights), ("kernels", self.kernels)):
            stated = header[f"{name}_size"]
            if stated != len(blob):
                raise InvalidProgramError(
                    f"program: its {name} is {len(blob)} bytes; its header says {stated}. The file is truncated."
                )
        if checksums and _crc(self.microcode) != header["microcode_crc"]:
            raise InvalidProgramError("program: the microcode's checksum is wrong. The file is corrupt.")
        if checksums and zlib.crc32(self.weights) != header["weights_crc"]:
            raise InvalidProgramError("program: the weights' checksum is wrong. The file is corrupt.")
        if header["profile_size"] or header["debug_size"] or header["state_size"]:
            self._verify_filled(header)
        return header

    def _verify_filled(self, header: Record) -> None:
        """Raise InvalidProgramError if the header asks for memory that a run does not need. Up to
        ``MOST_UNCOVERED_BYTES`` too many are allowed in the profile buffer (of an event for each call) and in the
        persistent area (of the states). A far buffer (in a third memory region) must be used."""
        words = _Words(self.microcode)
        buffers = words.read_many(rows.BUFFER, header["buffers_offset"], header["buffer_count"])
        bindings = words.read_many(
            rows.BINDING, header["bindings_offset"], header["input_count"] + header["output_count"]
        )
        uses_far = any(each["base"] == base("FAR") for each in (*buffers, *bindings))
        states = words.read_many(rows.STATE, header["states_offset"], header["state_count"])
        calls, inside, count = 0, 0, 1
        for at, instruction in words.instructions(header):
            if at >= inside:
                count = 1
            if instruction.row.name == "LOOP":
                inside, count = at + 1 + len(instruction.values) + instruction["body_words"], instruction["count"]
            calls += count * ("operator" in {item.name for item in instruction.row.fields})
        kept = max((aligned(state["offset"] + state["size"]) for state in states), default=0) + MOST_UNCOVERED_BYTES
        for name, most in (
            ("profile", calls * PROFILE_EVENT_BYTES + MOST_UNCOVERED_BYTES),
            ("debug", header["debug_size"] if uses_far else 0),
            ("state", kept),
        ):
            stated = header[f"{name}_size"]
            if stated > most:
                raise InvalidProgramError(
                    f"program: its header asks for a {name} buffer of {stated} bytes; a run writes at most {most}. The file is corrupt."
                )


def _crc(microcode: bytes) -> int:
    return zlib.crc32(microcode[12:], zlib.crc32(bytes(4), zlib.crc32(microcode[:8])))


def aligned(size: int) -> int:
    """Return ``size`` rounded up to the microcode's alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _with_length(row: Row) -> int:
    return row.code | len(row.fields) << 16


def encode(microcode: Microcode, weights: bytes) -> Program:
    """Return the program's three blobs. The size of ``weights`` must be a multiple of the microcode's alignment."""
    assert len(weights) == aligned(len(weights))
    words: list[int] = [0] * len(rows.HEADER.fields)
    offsets: dict[str, int] = {}

    def section(name: str, records: Sequence[Record]) -> None:
        offsets[name] = len(words)
        for item in records:
            words.extend(value & 0xFFFFFFFF for value in item.values)

    section("bindings", (*microcode.inputs, *microcode.outputs))
    section("buffers", microcode.buffers)
    if microcode.states:
        section("states", microcode.states)
    offsets["operators"] = len(words)
    table = len(words)
    words.extend([0] * len(microcode.operators))
    for index, operator in enumerate(microcode.operators):
        words[table + index] = len(words)
        words.append(_with_length(operator.row))
        words.extend(value & 0xFFFFFFFF for value in operator.values)
    offsets["code"] = len(words)
    for instruction in microcode.code:
        words.append(_with_length(instruction.row))
        words.extend(value & 0xFFFFFFFF for value in instruction.values)
    code_words = len(words) - offsets["code"]
    words.extend([0] * (aligned(4 * len(words)) // 4 - len(words)))
    kernels = _encode_names(microcode)
    header = {column.name: 0 for column in rows.HEADER.fields}
    header.update(
        magic=rows.MAGIC,
        format_version=rows.FORMAT_VERSION,
        weights_crc=zlib.crc32(weights),
        kernels_size=len(kernels),
        microcode_size=4 * len(words),
        weights_size=len(weights),
        target=microcode.target,
        scratch_size=microcode.scratch_size,
        profile_size=microcode.profile_size,
        prefetch_size=microcode.prefetch_size,
        debug_size=microcode.far_size,
        input_count=len(microcode.inputs),
        output_count=len(microcode.outputs),
        bindings_offset=offsets["bindings"],
        buffers_offset=offsets["buffers"],
        buffer_count=len(microcode.buffers),
        operators_offset=offsets["operators"],
        operator_count=len(microcode.operators),
        code_offset=offsets["code"],
        code_words=code_words,
        cycles_low=microcode.cycles & 0xFFFFFFFF,
        cycles_high=microcode.cycles >> 32,
        state_size=microcode.state_size,
        states_offset=offsets.get("states", 0),
        state_count=len(microcode.states),
    )
    words[: len(header)] = record(rows.HEADER, **header).values
    return with_checksum(Program(np.array(words, "<u4").tobytes(), weights, kernels))


def with_checksum(program: Program) -> Program:
    """Return the program with its checksum computed again, for microcode whose words were changed on purpose."""
    blob = program.microcode
    return Program(blob[:8] + _crc(blob).to_bytes(4, "little") + blob[12:], program.weights, program.kernels)


def _encode_names(microcode: Microcode) -> bytes:
    used = sorted({operator.row.code for operator in microcode.operators})
    lines = [NAMES_TITLE]
    lines += [f"kernel {code} {rows.KERNEL_BY_CODE[code].name}" for code in used]
    lines += [f"operator {' '.join(name.split())}" for name in microcode.names]
    text = ("\n".join(lines) + "\n").encode()
    return text + bytes(aligned(len(text)) - len(text))


def is_foreign(microcode: bytes) -> bool:
    """Return whether these bytes begin as microcode of another compiler.

    NXP has published only the magic word and the positions of some sizes. All other words may have any value.
    """
    magic, version = (int.from_bytes(microcode[at : at + 4], "little") for at in (0, 4))
    return magic == rows.MAGIC and version >> 16 != rows.FORMAT_VERSION >> 16


def refuse_foreign(microcode: bytes) -> None:
    """Raise InvalidProgramError if these bytes begin as microcode of another compiler."""
    if is_foreign(microcode):
        version = int.from_bytes(microcode[4:8], "little")
        raise InvalidProgramError(
            f"microcode: its version word is 0x{version:08x}, and OpenNeutron's start with 0x{rows.FORMAT_VERSION >> 16:04x}: "
            "another compiler made it, such as NXP's eIQ Neutron converter, and only NXP's firmware runs that. Compile the "
            "model with OpenNeutron to run it here."
        )


def _read_header(blob: bytes) -> Record:
    count = len(rows.HEADER.fields)
    if len(blob) < 4 * count:
        raise InvalidProgramError(f"microcode: it is {len(blob)} bytes; its header alone has {4 * count}.")
    header = _of_words(rows.HEADER, np.frombuffer(blob, "<u4", count).tolist())
    if header["magic"] != rows.MAGIC:
        raise InvalidProgramError(
            f"microcode: its first word is 0x{header['magic']:08x}; microcode starts with 0x{rows.MAGIC:08x}."
        )
    refuse_foreign(blob)
    if header["format_version"] != rows.FORMAT_VERSION:
        raise InvalidProgramError(
            f"microcode: its format is 0x{header['format_version']:08x}; this version reads 0x{rows.FORMAT_VERSION:08x} "
            "alone. Compile the model again."
        )
    return header


def _of_words(row: Row, values: list[int]) -> Record:
    """Return a record of this row with these values, without checking that each value fits a word."""
    made = _NEW(Record)
    _SET_ROW(made, row)
    _SET_VALUES(made, tuple(values))
    return made


class _Words:
    """The words of a microcode blob. A method raises InvalidProgramError if the blob does not hold the record that it
    reads."""

    def __init__(self, microcode: bytes) -> None:
        self.signed: list[int] = np.frombuffer(microcode, "<i4", len(microcode) // 4).tolist()

    def unsigned(self, at: int) -> int:
        return self.signed[at] & 0xFFFFFFFF

    def read(self, row: Row, at: int) -> Record:
        values = self.signed[at : at + len(row.names)]
        if len(values) < len(row.names):
            raise InvalidProgramError(f"microcode: a {row.name} at word {at} runs past its end.")
        if values and min(values) < 0:
            for place in row.unsigned:
                values[place] &= 0xFFFFFFFF
        return _of_words(row, values)

    def read_many(self, row: Row, at: int, count: int) -> tuple[Record, ...]:
        width = len(row.fields)
        if at + count * width > len(self.signed):
            raise InvalidProgramError(f"microcode: {count} {row.name} records at word {at} run past its end.")
        return tuple(self.read(row, at + i * width) for i in range(count))

    def read_coded(self, table: Mapping[int, Row], what: str, at: int) -> Record:
        if at >= len(self.signed):
            raise InvalidProgramError(f"microcode: an {what} at word {at} runs past its end.")
        word = self.unsigned(at)
        code, length = word & 0xFFFF, word >> 16
        row = table.get(code)
        if row is None or length != len(row.names):
            raise InvalidProgramError(f"microcode: unknown {what} {code} of {length} words at word {at}.")
        return self.read(row, at + 1)

    def instructions(self, header: Record) -> Iterator[tuple[int, Record]]:
        """Yield the position of each instruction, and the instruction."""
        at, end = header["code_offset"], header["code_offset"] + header["code_words"]
        while at < end:
            instruction = self.read_coded(rows.INSTRUCTION_BY_CODE, "instruction", at)
            yield at, instruction
            at += 1 + len(instruction.values)


def decode(program: Program, *, checksums: bool = True) -> Microcode:
    """Return the records of a program. Raises InvalidProgramError if the blobs are not a program.

    With ``checksums``, the checksums of microcode and weights are compared too, which finds damage to a file.
    """
    header = program.verified_header(checksums)
    words = _Words(program.microcode)
    inputs, outputs = header["input_count"], header["output_count"]
    bindings = words.read_many(rows.BINDING, header["bindings_offset"], inputs + outputs)
    buffers = words.read_many(rows.BUFFER, header["buffers_offset"], header["buffer_count"])
    table, count = header["operators_offset"], header["operator_count"]
    if table + count > len(words.signed):
        raise InvalidProgramError(f"microcode: {count} operators at word {table} run past its end.")
    places = [words.unsigned(table + i) for i in range(count)]
    operators = tuple(words.read_coded(rows.KERNEL_BY_CODE, "operator", place) for place in places)
    names = _decode_names(program.kernels)
    if names and len(names) != count:
        raise InvalidProgramError(f"program: its kernels blob names {len(names)} operators; its microcode has {count}.")
    return Microcode(
        inputs=bindings[:inputs],
        outputs=bindings[inputs:],
        buffers=buffers,
        operators=operators,
        code=tuple(instruction for _, instruction in words.instructions(header)),
        scratch_size=header["scratch_size"],
        prefetch_size=header["prefetch_size"],
        far_size=header["debug_size"],
        profile_size=header["profile_size"],
        target=header["target"],
        cycles=header["cycles_low"] | header["cycles_high"] << 32,
        names=names,
        states=words.read_many(rows.STATE, header["states_offset"], header["state_count"]),
        state_size=header["state_size"],
    )


def _decode_names(kernels: bytes) -> tuple[str, ...]:
    lines = kernels.rstrip(b"\0").decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != NAMES_TITLE:
        raise InvalidProgramError("program: its kernels blob is not one of this project's.")
    return tuple(line.removeprefix("operator ") for line in lines if line.startswith("operator "))


# -- facts: what a profile states about an operator ----------------------------------------------------------------------

MARK = "facts "
"""The text that begins the line of an operator. The delegate searches for it (runtime/delegate/profile.h)."""


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """The facts about an operator that a profile shows.

    ``layer`` is the operator's name in the model, and ``module`` the path of its PyTorch module. ``operators`` and
    ``lines`` are the model's operators and source lines (``net.py:12``) that it computes. ``bytes`` is the number of
    bytes of one run: tensors that are read and written, and constants.
    """

    layer: str
    bytes: int = 0
    module: str = ""
    operators: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the facts as a line of the kernels blob."""
        rest = {key: value for key, value in asdict(self).items() if key != "layer" and value}
        return f"{MARK}{' '.join(self.layer.split())}\t{json.dumps(rest, separators=(',', ':'))}"

    @classmethod
    def of_line(cls, line: str) -> OperatorFacts:
        """Return the facts in a line of the kernels blob. Raises ValueError or TypeError if the line is damaged."""
        layer, tab, rest = line.removeprefix(MARK).partition("\t")
        stated = json.loads(rest) if tab else None
        if not isinstance(stated, dict):
            raise ValueError(line)
        return cls(
            layer,
            int(stated.get("bytes", 0)),
            str(stated.get("module", "")),
            tuple(map(str, stated.get("operators", ()))),
            tuple(map(str, stated.get("lines", ()))),
        )


def event_name(index: int, layer: str) -> str:
    """Return the name that the delegate gives to event ``index`` of a run. No two events of a run have the same name."""
    return f"{index} {layer}"


def with_facts(program: Program, facts: Sequence[OperatorFacts]) -> Program:
    """Return the program with these facts instead of its own: one for each operator, or none."""
    assert len(facts) in (0, program.header["operator_count"]), "each operator has its facts"
    kept = [line for line in _lines(program) if not line.startswith(MARK)]
    text = ("\n".join([*kept, *(item.line() for item in facts)]) + "\n").encode()
    words = np.frombuffer(program.microcode, "<u4").copy()
    words[rows.HEADER.places["kernels_size"]] = aligned(len(text))
    return with_checksum(Program(words.tobytes(), program.weights, text + bytes(aligned(len(text)) - len(text))))


def facts_of(program: Program) -> tuple[OperatorFacts, ...]:
    """Return the facts of each operator; an empty tuple if the program was compiled without profiling.

    Raises InvalidProgramError if the facts are damaged, or if their number is not that of the operators.
    """
    lines = [line for line in _lines(program) if line.startswith(MARK)]
    count = program.header["operator_count"]
    if lines and len(lines) != count:
        raise InvalidProgramError(
            f"program: it has {count} operators and the facts of {len(lines)}. Compile the model again."
        )
    try:
        return tuple(map(OperatorFacts.of_line, lines))
    except (ValueError, TypeError) as error:
        raise InvalidProgramError("program: its facts for profiles can't be read. Compile the model again.") from error


def _lines(program: Program) -> list[str]:
    return program.kernels.rstrip(b"\0").decode("utf-8", "replace").split("\n")[:-1]


# -- steps: kernel calls, copies of constants and waits in the order of a run, loops unrolled ----------------------------


@dataclass(frozen=True, slots=True)
class CallStep:
    """A kernel call of the operator with this index. It computes the output's rows [first, end) in ``rows``."""

    operator: int
    cycles: int
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CopyStep:
    """The start of a copy of constants from the weights to SRAM. ``base`` and ``destination`` are the words of the
    instruction FETCH."""

    size_bytes: int
    channel: int
    base: int
    destination: int


@dataclass(frozen=True, slots=True)
class WaitStep:
    """A wait for all copies of the channel."""

    channel: int


Step = CallStep | CopyStep | WaitStep


def steps(microcode: Microcode) -> Iterator[Step]:
    """Yield the steps of a run. A call whose window has no elements is no step, so that the calls are those that a
    profile lists."""
    code = microcode.code
    at = 0
    while at < len(code):
        if code[at].row.name != "LOOP":
            yield from _step(microcode, code[at], 0)
            at += 1
            continue
        end, words = at + 1, 0
        while words < code[at]["body_words"]:
            words += 1 + len(code[end].values)
            end += 1
        for iteration in range(code[at]["count"]):
            for instruction in code[at + 1 : end]:
                yield from _step(microcode, instruction, iteration)
        at = end


def calls(microcode: Microcode) -> list[CallStep]:
    """Return the kernel calls of a run."""
    return [step for step in steps(microcode) if isinstance(step, CallStep)]


def _step(microcode: Microcode, instruction: Record, iteration: int) -> Iterator[Step]:
    name = instruction.row.name
    if name == "FETCH":
        yield CopyStep(*(instruction[key] for key in ("size", "channel", "base", "destination")))
    elif name == "WAIT":
        yield WaitStep(instruction["channel"])
    elif name in ("CALL", "ROWS", "WINDOW"):
        rows = _rows(microcode, instruction, iteration)
        if rows is not None:
            yield CallStep(instruction["operator"], instruction["cycles"], rows)


def _rows(microcode: Microcode, call: Record, iteration: int) -> tuple[int, int] | None:
    """Return the output's rows that a call computes; None if its window has no elements."""
    output = microcode.buffers[microcode.operators[call["operator"]]["output"]]
    name = call.row.name
    first, end = 0, output["rows"]
    if name != "CALL":
        moved = call["step"] * iteration
        first, end = (min(max(call[key] + moved, 0), output["rows"]) for key in ("row0", "row1"))
    others = [("batch", "batches"), ("col", "cols"), ("channel", "channels")] if name == "WINDOW" else []
    empty = any(max(call[f"{axis}0"], 0) >= min(call[f"{axis}1"], output[extent]) for axis, extent in others)
    return None if empty or first >= end else (first, end)
