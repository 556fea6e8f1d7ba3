# SPDX-License-Identifier: BSD-3-Clause
"""Readers of compiled files as deployments: of a ``.pte`` with its delegate calls, and of a ``.tflite`` that is one
NeutronGraph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openneutron import litert
from openneutron.device import data, pte
from openneutron.device.data import ModelInput
from openneutron.device.pte import DelegateCall, Jump, KernelCall, Method, TensorValue, methods, numbers
from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError, InvalidModelError, InvalidOptionError, InvalidProgramError
from openneutron.features.export.c_text import plain_name
from openneutron.features.export.deployment import (
    ITEM_BYTES,
    STORED_RANGES,
    Call,
    Deployment,
    Golden,
    IoTensor,
    Place,
    Quantization,
    Where,
)
from openneutron.ir import Tensor
from openneutron.isa import Program, decode, payload
from openneutron.isa.microcode import is_foreign
from openneutron.isa.payload import SPAN_BYTES, Format, NxpProgram, Payload
from openneutron.language import model as language_model
from openneutron.language.model import Interface
from openneutron.litert import LiteRTModel
from openneutron.litert.interpret import InterpreterProcess
from openneutron.litert.neutron_graph import OPERATOR_NAME, find, only_graph
from openneutron.options import DataOptions

QUANTIZE = "quantized_decomposed::quantize_per_tensor.out"
DEQUANTIZE = "quantized_decomposed::dequantize_per_tensor.out"
MAIN = "forward"


def read_pte(data: bytes, file: str, name: str, is_nxp: bool = False) -> Deployment:
    """Return the deployment of a ``.pte``: its calls of programs, inputs and outputs. ``file`` is the file's name in
    messages, and ``name`` the name of the deployment. ``is_nxp`` states that its programs are those of NXP's
    converter.

    Raises InvalidProgramError where the file has no delegate of this project's backend, and where the file or a
    payload is damaged. Raises InvalidModelError where the file has no method ``forward``, where a part of the model
    runs on the CPU, where the microcode is not for the driver (``check_maker``), or where exported C code does not
    support the model's tensors.
    """
    found = methods(data, file)
    method = next((method for method in found if method.name == MAIN), None)
    if method is None:
        listed = ", ".join(f"'{other.name}'" for other in found) or "none"
        raise InvalidModelError(f"'{file}' has no method '{MAIN}'; its methods: {listed}. Export a model that has it.")
    calls = [step for step in method.instructions if isinstance(step, DelegateCall)]
    if not any(delegate.backend == pte.BACKEND_ID for delegate in method.delegates):
        others = ", ".join(sorted({delegate.backend for delegate in method.delegates})) or "none"
        raise InvalidProgramError(
            f"'{file}' has no {pte.BACKEND_ID} delegate in it; its delegates: {others}. "
            "Compile the model first: openneutron compile MODEL -o MODEL.pte."
        )
    try:
        reader = _Reader(method, file, numbers(found))
        reader.refuse_cpu_operators()
        payloads = {step.delegate: _payload(method, step.delegate, file, is_nxp) for step in calls}
        made = tuple(reader.call(step, payloads[step.delegate]) for step in calls)
    except IndexError as error:  # a value, operator or delegate that the file does not have
        raise _damaged(file) from error
    reader.refuse_what_is_not_computed()
    for call in made:
        _refuse_debugging(call.program, file)
    is_language = any(Format.SPAN in each.input_formats for each in payloads.values())
    language = language_model.found(data, file)[0] if is_language else None
    return Deployment(name, made, *reader.io_tensors(), tuple(reader.between.values()), language=language)


def _sizes(program: Program, found: list[int]) -> list[int]:
    """Return the sizes in bytes that a program states for its inputs and outputs.

    The form in which programs of NXP's converter state sizes is not published. For such a program, ``found`` is
    returned.
    """
    if isinstance(program, NxpProgram):
        return found
    microcode = decode(program)
    return [binding["size"] for binding in (*microcode.inputs, *microcode.outputs)]


def _refuse_debugging(program: Program, file: str) -> None:
    if isinstance(program, NxpProgram) and program.header["debug_size"]:
        raise InvalidModelError(
            f"'{file}': its microcode has a debug buffer of {program.header['debug_size']} bytes; a bundle has none. Convert the model "
            "without debugging."
        )


def _damaged(file: str) -> InvalidProgramError:
    return InvalidProgramError(f"'{file}' is damaged: its delegate calls make no sense. Compile the model again.")


def _size_bytes(tensor: TensorValue) -> int:
    """Return the size of a tensor in bytes; 0 if its type or shape is not allowed for inputs and outputs."""
    if tensor.dtype not in ITEM_BYTES or min(tensor.shape, default=1) < 1:
        return 0
    return math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def _payload(method: Method, index: int, file: str, is_nxp: bool) -> Payload:
    blob = method.delegates[index].payload
    try:
        check_maker(payload.microcode_of(blob), file, is_nxp)
        return payload.parse_nxp(blob) if is_nxp else payload.parse(blob)
    except InvalidProgramError as error:
        raise InvalidProgramError(f"'{file}' ({method.name}, delegate {index}): {error}") from error


def check_maker(microcode: bytes, file: str, is_nxp: bool) -> None:
    """Raise InvalidModelError if the microcode does not fit the driver: NXP's driver (``is_nxp``) runs only NXP's microcode, and this project's
    driver only its own."""
    if is_nxp and not is_foreign(microcode):
        raise InvalidModelError(
            f"'{file}' has OpenNeutron's microcode, and NXP's NPU does not run it. Compile the model with converter='eiq' "
            "(`--converter eiq`), which takes NXP's eiq_neutron_sdk, or export it in a form whose core computes the kernels, such as "
            "--for cortex_m33, or --for cmake for Linux, which may have matrix products on the NPU too."
        )
    if not is_nxp and is_foreign(microcode):
        raise InvalidModelError(
            f"'{file}' has microcode of another compiler, such as NXP's eIQ Neutron converter, and only NXP's firmware runs that. "
            "Export it with --for zephyr-nxp, mcuxpresso-nxp or linux-nxp, which link NXP's driver, or compile the model with "
            "OpenNeutron."
        )


@dataclass(slots=True)
class _Reader:
    """The tensors of a method that its delegate calls use, as they are found call by call."""

    method: Method
    file: str
    numbers: dict[str, float]
    inputs: dict[int, IoTensor] = field(default_factory=dict)
    """The inputs of the model, by the index of the value that a delegate call reads."""
    outputs: dict[int, IoTensor] = field(default_factory=dict)
    """The outputs of the model, by the index of the value that a delegate call writes."""
    between: dict[int, int] = field(default_factory=dict)
    """The sizes of the tensors between calls in bytes, by the index of the value."""
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The memory order of each value that a delegate call writes, by the index of the value."""

    def refuse_cpu_operators(self) -> None:
        """Check that the method has only delegate calls, and conversions of its inputs and outputs. Raises
        InvalidModelError for other operators."""
        on_cpu: Counter[str] = Counter()
        for step in self.method.instructions:
            if isinstance(step, Jump):
                on_cpu["a move or jump"] += 1
            elif isinstance(step, KernelCall) and not self._is_conversion(step):
                on_cpu[step.operator] += 1
            elif isinstance(step, DelegateCall) and self.method.delegates[step.delegate].backend != pte.BACKEND_ID:
                on_cpu[f"delegate {self.method.delegates[step.delegate].backend}"] += 1
        if on_cpu:
            listed = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in on_cpu.items())
            raise InvalidModelError(
                f"'{self.file}' does not run on the NPU alone: {listed}. A bundle has no CPU operators. See what stays on the CPU, "
                "and why, with `openneutron explain MODEL`, or link the .pte with ExecuTorch's own runtime and runtime/delegate."
            )

    def _is_conversion(self, step: KernelCall) -> bool:
        if step.operator == QUANTIZE:
            return step.arguments[0] in self.method.inputs
        return step.operator == DEQUANTIZE and step.arguments[-1] in self.method.outputs

    def _quantized(self, step: KernelCall, dtype: str) -> Quantization:
        scale, zero, least, most = (self.method.values[index] for index in step.arguments[1:5])
        if not isinstance(scale, float):
            raise _damaged(self.file)
        if not (isinstance(zero, int) and isinstance(least, int) and isinstance(most, int)):
            raise _damaged(self.file)
        lowest, highest = STORED_RANGES.get(dtype, STORED_RANGES["int8"])
        if not (0 < scale < math.inf and lowest <= least <= zero <= most <= highest):
            raise InvalidModelError(
                f"'{self.file}': {step.operator} has scale {scale}, zero point {zero} and the range {least} to {most}; a bundle "
                "has int8 and int16 inputs and outputs. Compile the model again with this version."
            )
        return Quantization(scale, zero, least, most)

    def call(self, step: DelegateCall, contents: Payload) -> Call:
        """Return the call of a program. Its inputs and outputs are added to the tensors of this reader."""
        arguments, results = step.arguments[: contents.arguments], step.arguments[contents.arguments :]
        if len(arguments) != contents.arguments or len(results) != len(contents.output_map):
            raise _damaged(self.file)
        values = [arguments[index] for index in contents.input_map] + [results[index] for index in contents.output_map]
        formats = (*contents.input_formats, *contents.output_formats)
        found = [
            SPAN_BYTES if form is Format.SPAN else _size_bytes(self.method.tensor(value))
            for value, form in zip(values, formats, strict=True)
        ]
        if found != _sizes(contents.program, found) or 0 in found:
            raise _damaged(self.file)
        takes = [
            self._taken(arguments[index], form)
            for index, form in zip(contents.input_map, contents.input_formats, strict=True)
        ]
        gives = [
            self._given(results[index], form)
            for index, form in zip(contents.output_map, contents.output_formats, strict=True)
        ]
        return Call(contents.program, tuple(takes), tuple(gives))

    def _order(self, value: int, form: Format) -> tuple[int, ...]:
        rank = len(self.method.tensor(value).shape)
        if form is Format.CHANNELS_LAST:
            if rank < 3:
                raise _damaged(self.file)
            return (0, *range(2, rank), 1)
        return tuple(range(rank))

    def _taken(self, value: int, form: Format) -> Place:
        order = self._order(value, form)
        if value in self.orders:
            self._agree(order, self.orders[value])
            if value in self.outputs:
                return Place(Where.OUTPUT, list(self.outputs).index(value))
            return Place(Where.BETWEEN, list(self.between).index(value))
        if value not in self.inputs:
            self.inputs[value] = self._input(value, order, form)
        self._agree(order, self.inputs[value].order)
        return Place(Where.INPUT, list(self.inputs).index(value))

    def _agree(self, order: tuple[int, ...], other: tuple[int, ...]) -> None:
        """Check that two programs have a tensor in the same memory order. Raises InvalidModelError where they don't."""
        if order != other:
            raise InvalidModelError(
                f"'{self.file}': two of its programs have a tensor in two memory orders. "
                "Compile the model with use_neutron_for_format_conversion=True."
            )

    def _conversion(self, operator: str, place: int, value: int) -> KernelCall | None:
        """Return the call of ``operator`` whose argument number ``place`` is ``value``, or None."""
        calls = (step for step in self.method.instructions if isinstance(step, KernelCall))
        return next((step for step in calls if step.operator == operator and step.arguments[place] == value), None)

    def _input(self, value: int, order: tuple[int, ...], form: Format) -> IoTensor:
        step = self._conversion(QUANTIZE, -1, value)
        taken = value if step is None else step.arguments[0]
        if taken not in self.method.inputs:
            raise InvalidModelError(
                f"'{self.file}': a delegate call takes a constant of the file. Compile the model again with this version."
            )
        index = self.method.inputs.index(taken)
        if form is Format.SPAN:
            return IoTensor(SPAN, "int64", (2,), (0,), None, index)
        return self._tensor("input", value, index, order, step)

    def _given(self, value: int, form: Format) -> Place:
        order = self.orders[value] = self._order(value, form)
        step = self._conversion(DEQUANTIZE, 0, value)
        given = value if step is None else step.arguments[-1]
        if given in self.method.outputs:
            self.outputs[value] = self._tensor("output", value, self.method.outputs.index(given), order, step)
            return Place(Where.OUTPUT, list(self.outputs).index(value))
        self.between[value] = _size_bytes(self.method.tensor(value))
        return Place(Where.BETWEEN, list(self.between).index(value))

    def _tensor(
        self, kind: str, value: int, index: int, order: tuple[int, ...], conversion: KernelCall | None
    ) -> IoTensor:
        """Return an input or output. Its quantization is that of ``conversion``, the call that quantizes or
        dequantizes it. Without such a call, it is the one that methods of the file state; None if they state none."""
        tensor = self.method.tensor(value)
        name = f"{kind}{index}"
        if tensor.dtype not in ITEM_BYTES:
            raise InvalidModelError(
                f"'{self.file}': {name} is {tensor.dtype}; a bundle has {', '.join(ITEM_BYTES)}. Convert it in the model's caller."
            )
        scale, zero, least, most = (
            self.numbers.get(f"{name}_{what}") for what in ("scale", "zp", "quant_min", "quant_max")
        )
        quantization = None
        if conversion is not None:
            quantization = self._quantized(conversion, tensor.dtype)
        elif scale is not None and zero is not None and least is not None and most is not None:
            quantization = Quantization(float(scale), int(zero), int(least), int(most))
        return IoTensor(name, tensor.dtype, tensor.shape, order, quantization, index, conversion is not None)

    def refuse_what_is_not_computed(self) -> None:
        """Check that a program computes each output of the model. Raises InvalidModelError where none does."""
        given = {tensor.model_index for tensor in self.outputs.values()}
        computed = set(self.outputs)
        for index, value in enumerate(self.method.outputs):
            if index not in given and value not in computed:
                raise InvalidModelError(
                    f"'{self.file}': output {index} is not computed by the NPU (it is an input, a constant, or returned twice). "
                    "Remove it from the model's outputs."
                )

    def io_tensors(self) -> tuple[tuple[IoTensor, ...], tuple[IoTensor, ...]]:
        return tuple(self.inputs.values()), tuple(self.outputs.values())


def read_tflite(data: bytes | Path, name: str, is_nxp: bool = False) -> Deployment:
    """Return the deployment of a compiled ``.tflite``. ``data`` is the file's path or content, and ``name`` is the
    name of the deployment. ``is_nxp``: its program is that of NXP's converter.

    Raises InvalidProgramError where the file has no NeutronGraph or a damaged one. Raises InvalidModelError where it
    is no LiteRT file, or where the microcode is not for the driver (``check_maker``). A file with other operators or
    more than one NeutronGraph raises InvalidModelError, or with ``is_nxp`` InvalidProgramError.
    """
    file = data.name if isinstance(data, Path) else name
    model = litert.read(data)
    if OPERATOR_NAME not in {node.op for node in model.graph.nodes}:
        raise InvalidProgramError(f"'{file}' has no NeutronGraph in it. Compile it first: openneutron compile {file}.")
    if is_nxp:
        return _read_nxp_tflite(data.read_bytes() if isinstance(data, Path) else data, model, file, name)
    try:
        nodes = find(model.model)
    except InvalidProgramError:
        with suppress(InvalidProgramError):
            only = only_graph(data.read_bytes() if isinstance(data, Path) else data)
            check_maker(only.program.microcode, file, is_nxp=False)
        raise
    graph = model.graph
    if len(graph.nodes) != 1:
        others = [node.op for place, node in enumerate(graph.nodes) if place not in {found.operator for found in nodes}]
        rest = (
            f"{len(nodes)} NeutronGraphs"
            if not others
            else f"LiteRT operators beside them ({', '.join(sorted(set(others)))})"
        )
        raise InvalidModelError(
            f"'{file}' does not run on the NPU alone: it has {rest}. A bundle has no CPU operators. See what stays on the CPU, "
            "and why, with `openneutron explain MODEL`."
        )
    node = nodes[0]
    by_place = {model.tensor_index[tensor_name]: tensor for tensor_name, tensor in graph.tensors.items()}
    inputs = [by_place[place] for place in node.inputs]
    outputs = [by_place[place] for place in node.outputs]
    model_inputs, model_outputs = list(graph.inputs), list(graph.outputs)
    missing = [tensor.name for tensor in outputs if tensor.name not in model_outputs]
    missing += [tensor.name for tensor in inputs if tensor.name not in model_inputs]
    if missing:
        raise InvalidModelError(f"'{file}': its NeutronGraph's '{missing[0]}' is no input or output. Compile it again.")
    return Deployment(
        name,
        (
            Call(
                node.program,
                tuple(Place(Where.INPUT, index) for index in range(len(inputs))),
                tuple(Place(Where.OUTPUT, index) for index in range(len(outputs))),
            ),
        ),
        tuple(_io_tensor(file, tensor, model_inputs.index(tensor.name)) for tensor in inputs),
        tuple(_io_tensor(file, tensor, model_outputs.index(tensor.name)) for tensor in outputs),
    )


def _read_nxp_tflite(data: bytes, model: LiteRTModel, file: str, name: str) -> Deployment:
    graph = model.graph
    try:
        found = only_graph(data)
    except InvalidProgramError as error:
        raise InvalidProgramError(
            f"'{file}': {str(error).rstrip('.')}. Convert a model that runs on the NPU alone."
        ) from error
    check_maker(found.program.microcode, file, is_nxp=True)
    blobs = found.program
    program = NxpProgram(blobs.microcode, blobs.weights, blobs.kernels, found.payload_version)
    try:
        program.verify()
    except InvalidProgramError as error:
        raise InvalidProgramError(f"'{file}': {error}") from error
    stated = tuple(program.header[f"{kind}_count"] for kind in ("input", "output"))
    if stated != (len(found.inputs), len(found.outputs)):
        raise InvalidProgramError(
            f"'{file}': its NeutronGraph has {len(found.inputs)} inputs and {len(found.outputs)} outputs; its microcode has "
            f"{stated[0]} and {stated[1]}. The file is corrupt."
        )
    _refuse_debugging(program, file)
    return Deployment(
        name,
        (
            Call(
                program,
                tuple(Place(Where.INPUT, index) for index in range(len(found.inputs))),
                tuple(Place(Where.OUTPUT, index) for index in range(len(found.outputs))),
            ),
        ),
        tuple(_io_tensor(file, graph.tensors[each], graph.inputs.index(each)) for each in found.inputs),
        tuple(_io_tensor(file, graph.tensors[each], graph.outputs.index(each)) for each in found.outputs),
    )


def _io_tensor(file: str, tensor: Tensor, index: int) -> IoTensor:
    dtype = str(tensor.dtype)
    if dtype not in ITEM_BYTES:
        raise InvalidModelError(f"'{file}': '{tensor.name}' is {dtype}; a bundle has {', '.join(ITEM_BYTES)}.")
    quantization = None
    if tensor.quant is not None and not tensor.quant.per_channel and dtype in STORED_RANGES:
        quantization = Quantization(float(tensor.quant.scale), tensor.quant.zero_point, *STORED_RANGES[dtype])
    return IoTensor(tensor.name, dtype, tensor.shape, tuple(range(len(tensor.shape))), quantization, index)


SPAN = "span"
"""The name of the input of a language model that has the position of a run's first token, and the number of its tokens."""

SEED = 0

FRAMES = 16
"""The number of runs of a model with state that the example compares."""


@dataclass(frozen=True, slots=True)
class GoldenSample:
    """A sample on which the example runs: the model's arguments, None where the model has no such input. ``title`` is
    its origin in words."""

    title: str
    arguments: tuple[np.ndarray | None, ...] = field(repr=False)


def read_sample(given: str, deployment: Deployment, options: DataOptions, stated: str) -> GoldenSample:
    """Return the first sample of a data source, such as a folder of pictures. ``stated`` is the preprocessing of the
    model's calibration, which is used unless ``options`` has another one.

    Raises InvalidOptionError where the source has no sample that fits the model.
    """
    if not deployment.inputs:
        raise InvalidOptionError("--golden: the model takes no inputs. Leave it out.")
    inputs = [_wanted(tensor) for tensor in deployment.inputs]
    preprocess = stated or None if options.preprocess is None else options.preprocess
    source = data.source(
        given, inputs, preprocess=preprocess, sample_rate=options.sample_rate, limit=1, option="--golden"
    )
    sample = next(iter(source), None)
    if sample is None:
        raise InvalidOptionError(f"--golden: '{given}' has no samples in it.")
    arguments: list[np.ndarray | None] = [None] * (1 + max(tensor.model_index for tensor in deployment.inputs))
    for tensor, array in zip(deployment.inputs, sample.arrays, strict=True):
        arguments[tensor.model_index] = array
    steps = f" after `{plain_name(source.preprocessing)}`" if source.preprocessing else ""
    return GoldenSample(f"`{plain_name(sample.name)}`{steps}", tuple(arguments))


def _wanted(tensor: IoTensor) -> ModelInput:
    """Return the shape and type in which a sample has an input. The type is float32 if the tensor is quantized, since
    the values are quantized after they are read."""
    return ModelInput(tensor.shape, np.dtype(np.float32 if tensor.quantization is not None else tensor.dtype))


@dataclass(frozen=True, slots=True)
class Reference:
    """A stock ``.tflite`` that computes the same as a program of NXP's converter.

    ``inputs`` has the index of the program's input for each input of the file. ``outputs`` has the index of the file's output for each output of
    the program.
    """

    model: bytes = field(repr=False)
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, inputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """Return the bytes of the program's outputs, computed by LiteRT's reference kernels.

        Raises InvalidOptionError if the inputs do not have the sizes of the file's inputs, and InvalidModelError if LiteRT can't run the file.
        """
        graph = litert.read(self.model).graph
        given = []
        for name, place in zip(graph.inputs, self.inputs, strict=True):
            tensor = graph.tensors[name]
            shape, dtype = tuple(tensor.shape), np.dtype(str(tensor.dtype))
            if math.prod(shape) * dtype.itemsize != inputs[place].size:
                raise InvalidOptionError(
                    f"reference: its input '{plain_name(name)}' is {data.describe(dtype, shape)}; the program takes "
                    f"{inputs[place].size} bytes. Give the file from which NXP's converter made the program."
                )
            given.append(np.frombuffer(inputs[place].tobytes(), dtype).reshape(shape))
        process = InterpreterProcess([(self.model, "the reference")])
        try:
            found = process.run(0, given)
        finally:
            process.close()
        return [np.frombuffer(np.ascontiguousarray(found[place]).tobytes(), np.uint8) for place in self.outputs]


def reference_of(deployment: Deployment, path: Path) -> Reference:
    """Return the reference of a deployment with one program, whose inputs and outputs are those of the file in the same order.

    Raises InvalidOptionError for several programs, and where the file has other numbers of inputs and outputs.
    """
    if len(deployment.calls) != 1:
        raise InvalidOptionError(
            f"reference: the model has {len(deployment.calls)} programs; a reference has the operators of one. Leave it out."
        )
    graph = litert.read(path).graph
    places = []
    for kind, tensors, names in (
        ("inputs", deployment.inputs, graph.inputs),
        ("outputs", deployment.outputs, graph.outputs),
    ):
        if len(tensors) != len(names):
            raise InvalidOptionError(
                f"reference: '{path.name}' has {len(names)} {kind}; the program has {len(tensors)}. Give the file from which NXP's "
                "converter made the program."
            )
        places.append([tensor.model_index for tensor in tensors])
    inputs, outputs = places
    return Reference(path.read_bytes(), tuple(inputs.index(place) for place in range(len(inputs))), tuple(outputs))


def golden(
    deployment: Deployment, sample: GoldenSample | None = None, references: Sequence[Reference] | None = None
) -> Golden:
    """Return the inputs of the example and the expected outputs for them. The inputs are the sample; without one,
    they are random values with a fixed seed, for ``FRAMES`` runs if the model keeps state. A language model takes no
    sample: its inputs are a prompt of random tokens and the continuation.

    ``references``: None for programs of this project, whose outputs the simulator computes; else a reference for each
    call, or an empty sequence where the outputs are not known.

    Inputs of other types than int8 and int16 may be indices of a table. If random indices are outside of the table,
    these inputs are zeros. Raises DriverError where the driver rejects a program, and InvalidOptionError where the
    sample does not fit the model.
    """
    if deployment.language is not None:
        return _golden_text(deployment, deployment.language)
    if sample is not None:
        given = [_stored(sample, tensor) for tensor in deployment.inputs]
        return _golden(sample.title, [given], _run(deployment, [given], references))
    generator = np.random.default_rng(SEED)
    count = FRAMES if deployment.state_bytes else 1
    frames = [[_random(generator, tensor) for tensor in deployment.inputs] for _ in range(count)]
    try:
        outputs = _run(deployment, frames, references)
    except DriverError:
        if all(tensor.dtype in STORED_RANGES for tensor in deployment.inputs):
            raise
        frames = [
            [
                values if tensor.dtype in STORED_RANGES else np.zeros_like(values)
                for values, tensor in zip(inputs, deployment.inputs, strict=True)
            ]
            for inputs in frames
        ]
        outputs = _run(deployment, frames, references)
    return _golden("random values", frames, outputs)


PROMPT = 8
"""The largest number of tokens in the golden prompt of a language model."""

MOST_LOGITS = 1 << 18
"""The largest number of golden logits of a language model, over all runs. At least two runs are kept even if they have more."""


def _golden_text(deployment: Deployment, facts: Interface) -> Golden:
    """Return the golden runs of a language model: it continues a prompt of random tokens, and the most likely token is chosen each time."""
    generator = np.random.default_rng(SEED)
    count = min(PROMPT, facts.rows, facts.context)
    tokens, position = generator.integers(0, facts.vocabulary, count), 0
    if facts.begin_token is not None:
        tokens[0] = facts.begin_token
    runs = max(2, min(FRAMES, MOST_LOGITS // facts.vocabulary))
    frames: list[list[NDArray[np.uint8]]] = []
    outputs: list[list[NDArray[np.uint8]]] = []
    (call,) = deployment.calls
    with Simulator(call.program) as simulator:
        while len(frames) < runs and position + len(tokens) <= facts.context:
            given = np.zeros(facts.rows, np.int64)
            given[: len(tokens)] = tokens
            frames.append([given.view(np.uint8), np.array([position, len(tokens)], np.int64).view(np.uint8)])
            (logits,) = simulator.run(frames[-1])
            outputs.append([logits])
            position += len(tokens)
            tokens = np.array([np.argmax(logits.view(np.float32))])
    return _golden("a prompt of random tokens and its most likely continuation", frames, outputs)


Frames = Sequence[Sequence[NDArray[np.uint8]]]
"""The bytes of each tensor, for each run."""


def _golden(title: str, inputs: Frames, outputs: Frames) -> Golden:
    def joined(frames: Frames) -> tuple[bytes, ...]:
        return tuple(b"".join(each.tobytes() for each in values) for values in zip(*frames, strict=True))

    return Golden(title, joined(inputs), joined(outputs), len(inputs))


def _stored(sample: GoldenSample, tensor: IoTensor) -> NDArray[np.uint8]:
    """Return an argument in the form that the program reads: quantized with ExecuTorch's rounding, and in the memory
    order of the tensor. Raises InvalidOptionError where the sample has no argument of this shape."""
    index = tensor.model_index
    value = sample.arguments[index] if index < len(sample.arguments) else None
    if value is None or value.shape != tensor.shape:
        there = "nothing" if value is None else data.describe(value.dtype, value.shape)
        raise InvalidOptionError(
            f"golden: {sample.title} has {there} for input {index}; the program takes {tensor.dtype}{list(tensor.shape)}."
        )
    quantization = tensor.quantization
    if quantization is not None and value.dtype.kind == "f":
        inverse = np.float32(1) / np.float32(quantization.scale)
        stored = np.rint(value.astype(np.float32) * inverse) + np.float32(quantization.zero_point)
        value = np.clip(stored, quantization.least, quantization.most)
    arranged = np.ascontiguousarray(value.transpose(tensor.order).astype(tensor.dtype))
    return np.frombuffer(arranged.tobytes(), np.uint8)


def _random(generator: np.random.Generator, tensor: IoTensor) -> NDArray[np.uint8]:
    if tensor.dtype == "bool":
        return generator.integers(0, 2, tensor.elements, np.uint8)
    return generator.integers(0, 256, tensor.size_bytes, np.uint8)


def _run(deployment: Deployment, frames: Frames, references: Sequence[Reference] | None) -> Frames:
    """Return the outputs of consecutive runs on the simulator, or of the references. The first run begins with the initial state."""
    found: list[list[NDArray[np.uint8]]] = []
    if references is not None and len(references) == 0:
        return found
    with ExitStack() as stack:
        runs = (
            [stack.enter_context(Simulator(call.program)).run for call in deployment.calls]
            if references is None
            else [each.run for each in references]
        )
        for inputs in frames:
            values: dict[Place, NDArray[np.uint8]] = {Place(Where.INPUT, i): data for i, data in enumerate(inputs)}
            for call, run in zip(deployment.calls, runs, strict=True):
                results = run([values[place] for place in call.inputs])
                values.update(zip(call.outputs, results, strict=True))
            found.append([values[Place(Where.OUTPUT, index)] for index in range(len(deployment.outputs))])
    return found
