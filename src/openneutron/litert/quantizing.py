# SPDX-License-Identifier: BSD-3-Clause
"""Quantize float models with AI Edge Quantizer, in a process that LiteRT may crash: this module, run as a program.

    python -m openneutron.litert.quantizing

Messages have the form of ``interpreter_child``. The first request is ``{"activations": "int8" or "int16", "ends": boolean, "floats":
[names], "arrays": [model]}``. ``ends`` is true if inputs and outputs are quantized too. A name in ``floats`` is that of an operator that
stays float: its outputs, each with a semicolon. The model has one signature, ``main``, with the inputs ``input0``, ``input1`` ... Each
further request has the arrays of one calibration sample, and the end of stdin ends them. The answer is ``{"error": words or null,
"missing": a module that is not installed, or null, "arrays": [model]}``.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from typing import IO, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.errors import InvalidModelError, MissingToolError
from openneutron.litert.interpret import LONGEST_WORDS, ended
from openneutron.litert.interpreter_child import receive, send
from openneutron.litert.read import SUBGRAPHS_OF_OPTIONS, LiteRTModel, operator_name, places, read
from openneutron.litert.write import pack, prune

SIGNATURE = "main"

KEPT = b"openneutron kept/"
"""The prefix of the names of tensors whose operators stay float."""

SAMPLES_AT_ONCE = 32
"""The number of samples that are in memory at once (our own choice). The ranges do not depend on it."""

ACTIVATION_BITS = {"int8": 8, "int16": 16}


def main() -> None:
    """Answer one request."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the quantizer prints
    error, missing, made = None, None, []
    try:
        made = [np.frombuffer(_quantized(sys.stdin.buffer), np.uint8)]
    except ModuleNotFoundError as caught:
        missing = caught.name
    except (RuntimeError, ValueError, MemoryError, KeyError, IndexError, NotImplementedError) as caught:
        error = " ".join(str(caught).split()) or type(caught).__name__
    send(answers, {"error": error, "missing": missing}, made)


def _quantized(requests: IO[bytes]) -> bytes:
    """Return the quantized model of the requests. Raises whatever the quantizer raises."""
    from ai_edge_quantizer import quantizer
    from ai_edge_quantizer.qtyping import TFLOperationName

    warnings.simplefilter("ignore")
    asked, (model,) = receive(requests)
    tool = quantizer.Quantizer(model.tobytes())
    tool.add_static_config(".*", TFLOperationName.ALL_SUPPORTED, ACTIVATION_BITS[asked["activations"]], 8)
    no = quantizer.AlgorithmName.NO_QUANTIZE
    if not asked["ends"]:
        for end in (TFLOperationName.INPUT, TFLOperationName.OUTPUT):
            tool.update_quantization_recipe(".*", end, algorithm_key=no)
    for pattern in (f"^{re.escape(KEPT.decode())}", *(f"^{re.escape(scope)}$" for scope in asked["floats"])):
        tool.update_quantization_recipe(pattern, TFLOperationName.ALL_SUPPORTED, algorithm_key=no)
    ranges: dict[str, Any] = {}
    samples = _samples(requests)
    while some := list(islice(samples, SAMPLES_AT_ONCE)):
        ranges = tool.calibrate({SIGNATURE: some}, ranges or None, num_threads=1)
    return bytes(tool.quantize(ranges, enable_progress_report=False).quantized_model or b"")


def _samples(requests: IO[bytes]) -> Iterator[dict[str, np.ndarray]]:
    while True:
        try:
            _, arrays = receive(requests)
        except EOFError:
            return
        yield {f"input{place}": array for place, array in enumerate(arrays)}


PACKAGE = "ai_edge_quantizer"

PACKED_BITS = {schema.TensorType.INT4: 4, schema.TensorType.INT2: 2}
"""The types with several weights in a byte, the first in the lowest bits."""

STORED = {
    schema.TensorType.INT8: np.int8,
    schema.TensorType.UINT8: np.uint8,
    schema.TensorType.INT16: np.int16,
    schema.TensorType.FLOAT16: np.float16,
}
"""The types of weights that can be converted to float32, with NumPy's types of the stored values."""


def check_installed(name: str) -> None:
    """Raise MissingToolError where AI Edge Quantizer is not installed. ``name`` is the file's name in the message."""
    if find_spec(PACKAGE) is None:
        raise _missing(name, PACKAGE)


def _missing(name: str, module: str) -> MissingToolError:
    return MissingToolError(
        f"'{name}' computes in float32, and its quantization takes ai-edge-quantizer; '{module}' is not installed: "
        "pip install 'openneutron[quantizer]'."
    )


def as_float(model: LiteRTModel, name: str) -> LiteRTModel:
    """Return a float model with float32 weights in place of float16 and quantized ones.

    Raises InvalidModelError for weights that are quantized in blocks. ``name`` is the file's name in the message.
    """
    new = copy.deepcopy(model.model)
    changed = [_with_float_weights(new, subgraph, name) for subgraph in new.subgraphs]
    return replace(read(pack(prune(new))), appended=model.appended) if any(changed) else model


def _with_float_weights(model: Any, subgraph: Any, name: str) -> bool:
    """Convert the float16 and the quantized constants of a subgraph to float32 in place, and remove the DEQUANTIZE
    operators that read them. Return whether any constant was converted."""
    made = {place for operator in subgraph.operators or () for place in places(operator.outputs)}
    made.update(places(subgraph.inputs))
    converted = set()
    for place, tensor in enumerate(subgraph.tensors or ()):
        if place in made or model.buffers[tensor.buffer].data is None:
            continue
        value = _real(model, tensor, name)
        if value is not None:
            _store(model, tensor, value)
            converted.add(place)
    kept = []
    for operator in subgraph.operators or ():
        first = places(operator.inputs)[:1]
        if operator_name(model, operator) == "DEQUANTIZE" and converted.issuperset(first):
            output = subgraph.tensors[places(operator.outputs)[0]]
            # A buffer of its own: the quantizer does not expect that two tensors share one.
            output.buffer = len(model.buffers)
            model.buffers.append(copy.copy(model.buffers[subgraph.tensors[first[0]].buffer]))
        else:
            kept.append(operator)
    subgraph.operators = kept
    return bool(converted)


def _real(model: Any, tensor: Any, name: str) -> np.ndarray | None:
    """Return the values of a float16 or quantized weight as float32; None for other types, and for integers without a
    scale. Raises InvalidModelError for a weight that is quantized in blocks."""
    quant = tensor.quantization
    scaled = quant is not None and quant.scale is not None and len(quant.scale) > 0
    if quant is not None and quant.details is not None:
        raise InvalidModelError(
            f"'{name}': the weight '{(tensor.name or b'').decode('utf-8', 'replace')}' is quantized in blocks, which has no float form "
            "here. Convert the float model without quantization."
        )
    bits = PACKED_BITS.get(tensor.type)
    if bits is None and tensor.type not in STORED:
        return None
    if not scaled and tensor.type != schema.TensorType.FLOAT16:
        return None
    shape = tuple(int(extent) for extent in tensor.shape) if tensor.shape is not None else ()
    content = np.asarray(model.buffers[tensor.buffer].data, np.uint8)
    if bits is None:
        found = np.frombuffer(content.tobytes(), STORED[tensor.type], int(np.prod(shape, dtype=np.int64)))
    else:
        parts = [content << (8 - bits - place) for place in range(0, 8, bits)]
        found = (np.stack(parts, -1).view(np.int8) >> (8 - bits)).reshape(-1)[: int(np.prod(shape, dtype=np.int64))]
    values = found.reshape(shape).astype(np.float32)
    if not scaled:
        return values
    zeros = np.zeros(1, np.float32) if quant.zeroPoint is None else np.asarray(quant.zeroPoint, np.float32)
    scales = np.asarray(quant.scale, np.float32)
    along = [1] * len(shape)
    if len(scales) > 1:
        along[quant.quantizedDimension] = -1
    zeros = zeros.reshape(along) if len(zeros) > 1 else zeros
    return (values - zeros) * (scales.reshape(along) if len(scales) > 1 else scales)


def _store(model: Any, tensor: Any, value: np.ndarray) -> None:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(value.astype(np.float32).tobytes(), np.uint8)
    tensor.buffer, tensor.type, tensor.quantization = len(model.buffers), schema.TensorType.FLOAT32, None
    model.buffers.append(buffer)


def quantized(
    model: LiteRTModel,
    samples: Iterable[Sequence[np.ndarray]],
    name: str,
    activations: str = "int8",
    ends: bool = False,
    floats: Collection[int] = (),
) -> LiteRTModel:
    """Return a float model as AI Edge Quantizer quantizes it, with int8 weights.

    The main subgraph is quantized, with the subgraphs that it runs; others stay float.

    Args:
        model: The model, with float32 weights.
        samples: The calibration samples, each with one array for each input, which has the input's shape and type.
        name: The file's name in messages.
        activations: The type of activations, ``int8`` or ``int16``.
        ends: Whether inputs and outputs are of this type too; otherwise they stay float.
        floats: The operators that stay float, by their places in the main subgraph.

    Returns:
        The model. Operators that AI Edge Quantizer does not quantize stay float.

    Raises:
        InvalidModelError: AI Edge Quantizer or LiteRT can't take the model.
        MissingToolError: A package is not installed.
    """
    asked = _for_quantizer(model)
    main = asked.subgraphs[0]
    outputs = [[main.tensors[place].name.decode() for place in places(main.operators[each].outputs)] for each in floats]
    request = {
        "activations": activations,
        "ends": ends,
        "floats": ["".join(f"{tensor};" for tensor in each) for each in outputs],
    }
    made = read(_answer(pack(asked), request, samples, name))
    new = made.model
    for subgraph, before in zip(new.subgraphs, model.model.subgraphs, strict=True):
        for tensor in subgraph.tensors:
            tensor.name = (tensor.name or b"").removeprefix(KEPT)
        subgraph.name = before.name
    new.signatureDefs = _signatures(model.model, new)
    return replace(read(pack(new)), appended=model.appended)


def _for_quantizer(model: LiteRTModel) -> Any:
    """Return a copy of a model's objects with one signature, and a unique name for each tensor. Names in subgraphs
    that the main subgraph does not run have the prefix KEPT, so that these subgraphs stay float."""
    new = copy.deepcopy(model.model)
    reached = _reached(new)
    taken: set[bytes] = set()
    for index, subgraph in enumerate(new.subgraphs):
        for place, tensor in enumerate(subgraph.tensors or ()):
            own = (tensor.name or b"tensor%d" % place).decode("utf-8", "replace").encode()
            stem = own if index in reached else KEPT + own
            unique, copies = stem, 0
            while unique in taken:
                copies += 1
                unique = b"%s#%d" % (stem, copies)
            taken.add(unique)
            tensor.name = unique
    main = new.subgraphs[0]
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = SIGNATURE.encode(), 0
    signature.inputs = [_entry(f"input{i}", place) for i, place in enumerate(places(main.inputs))]
    signature.outputs = [_entry(f"output{i}", place) for i, place in enumerate(places(main.outputs))]
    new.signatureDefs = [signature]
    return new


def _entry(name: str, place: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), place
    return entry


def _reached(model: Any) -> set[int]:
    """Return the indices of the main subgraph and of those that it runs."""
    found, open_ones = {0}, [0]
    while open_ones:
        for operator in model.subgraphs[open_ones.pop()].operators or ():
            _, fields = SUBGRAPHS_OF_OPTIONS.get(operator_name(model, operator), ("", ()))
            new = {int(getattr(operator.builtinOptions, field)) for field in fields} - found
            found |= new
            open_ones += new
    return found


def _signatures(before: Any, after: Any) -> Any:
    """Return a copy of the signatures of ``before``, with the tensor indices of ``after``, its quantized form.
    Quantization may replace the tensors that are inputs and outputs."""
    signatures = copy.deepcopy(before.signatureDefs)
    for signature in signatures or ():
        old, new = (model.subgraphs[signature.subgraphIndex] for model in (before, after))
        for entries, ends in ((signature.inputs, "inputs"), (signature.outputs, "outputs")):
            moved = dict(zip(places(getattr(old, ends)), places(getattr(new, ends)), strict=True))
            for entry in entries or ():
                entry.tensorIndex = moved[entry.tensorIndex]
    return signatures


def _answer(model: bytes, request: dict[str, Any], samples: Iterable[Sequence[np.ndarray]], name: str) -> bytes:
    """Return the quantized model that the child process answers with. Raises as ``quantized`` does."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "openneutron.litert.quantizing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            send(child.stdin, request, [np.frombuffer(model, np.uint8)])
            for sample in samples:
                send(child.stdin, {}, sample)
            child.stdin.close()
            message, arrays = receive(child.stdout)
        except (EOFError, OSError) as error:
            child.kill()
            code = child.wait()
            log.seek(0)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
            words = f" Its last words: {lines[-1][:LONGEST_WORDS]}" if lines else ""
            raise InvalidModelError(
                f"'{name}': the process that quantizes it {ended(code)}: the fault is LiteRT's or AI Edge Quantizer's, with this "
                f"model.{words}"
            ) from error
        except BaseException:
            child.kill()
            raise
        finally:
            child.stdout.close()
            child.wait()
    if message["missing"]:
        raise _missing(name, message["missing"])
    if message["error"] is not None:
        raise InvalidModelError(f"'{name}': AI Edge Quantizer can't quantize it: {message['error'][:LONGEST_WORDS]}")
    return arrays[0].tobytes()


if __name__ == "__main__":
    main()
