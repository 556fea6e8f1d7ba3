# SPDX-License-Identifier: BSD-3-Clause
"""Describe a model's file: its format, its author, its inputs, and what a compile would do with it. Nothing in the file is executed, and PyTorch
is not imported."""

from __future__ import annotations

import json
import shlex
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from openneutron import litert
from openneutron.device import forms, pte
from openneutron.device.forms import Form, Kind, form_of
from openneutron.errors import InvalidModelError
from openneutron.ir import DType, Graph
from openneutron.litert import LiteRTModel, input_shapes
from openneutron.litert.neutron_graph import OPERATOR_NAME
from openneutron.litert.read import command_for
from openneutron.pytorch.source import file_kind

COMPILE = "openneutron compile {}"

QUANTIZED_FIRST = "A compile quantizes it to int8 with calibration data, and puts on the NPU what the NPU can run; the table names the rest."
AS_IT_IS = (
    "A compile takes its quantization as it is, and puts on the NPU what the NPU can run; the table names the rest."
)

MOST_JSON = 1 << 28
"""The size of the largest JSON text in an archive that is read, in bytes."""


ANY = ("...",)
"""The shape of an input if the file states neither sizes nor the number of axes."""


@dataclass(frozen=True, slots=True)
class TensorFact:
    """An input or an output of a model. ``shape`` has a name or ``?`` for a size that the file leaves open."""

    name: str
    dtype: str
    sizes: tuple[int | str, ...] = ()

    @property
    def shape(self) -> str:
        """Return the shape as text."""
        return "x".join(map(str, self.sizes)) or "scalar"

    @property
    def is_open(self) -> bool:
        """Return whether the user has to give a size. An open batch size is taken as 1."""
        return self.sizes == ANY or any(not isinstance(size, int) for size in self.sizes[1:])

    def data(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.sizes)}


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a model's file.

    Attributes:
        what: The format, and the types of the model's values.
        made_by: The program that wrote the file; empty if the file does not state it.
        inputs: The inputs.
        outputs: The outputs.
        operators: The number of operators or layers of each kind.
        notes: Facts that prevent a compile or that are worth knowing.
        plan: What a compile would do with the file.
        command: The suggested next command; ``{}`` stands for the file.
    """

    what: str
    made_by: str = ""
    inputs: tuple[TensorFact, ...] = ()
    outputs: tuple[TensorFact, ...] = ()
    operators: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    plan: str = ""
    command: str = ""


def described(path: Path) -> Description:
    """Return the description of a file. Raises InvalidModelError if the file is damaged or its format is unknown."""
    form = form_of(path)
    if form is None:
        raise InvalidModelError(f"'{path.name}' is of no known form. Models are {forms.listed(forms.MODELS)} files.")
    forms.check_content(path)
    try:
        return DESCRIBED.get(form.suffix, _by_row)(path, form)
    except InvalidModelError:
        raise
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
        EOFError,
        RuntimeError,
        zipfile.BadZipFile,
    ) as error:
        raise InvalidModelError(
            f"'{path.name}' can't be read as a {form.suffix}: {_first(error)}. The file is damaged."
        ) from error


def _by_row(_: Path, form: Form) -> Description:
    """Return a description from the row of a format in the table of formats alone, without reading the file."""
    if form.kind is Kind.OTHER:
        return Description(f"{form.suffix}", plan=_sentence(form.suggestion[True]))
    return Description(f"{form.suffix}", plan=QUANTIZED_FIRST, command=COMPILE)


# -- LiteRT ------------------------------------------------------------------------------------------------------------


def _litert(path: Path, _: Form) -> Description:
    read = litert.read(path)
    graph = read.graph
    found = Counter(node.op for node in graph.nodes)
    inputs = tuple(_of_graph(read, graph.inputs))
    given = [item for item in inputs if input_shapes.is_placeholder(read, item.name)]
    what, plan, command = f"LiteRT, {numbers(graph)}", QUANTIZED_FIRST, _with_shapes(given)
    if "float" not in what or "partly" in what:
        plan = AS_IT_IS
    if found[OPERATOR_NAME]:
        what, plan = "LiteRT, compiled for the NPU", "It is compiled already."
        command = _next_command(path)
    notes = []
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:  # behind the file's flatbuffer
        notes.append(f"It carries {', '.join(archive.namelist())}, which stays in what a compile writes.")
    return Description(
        what,
        _writer(read.model),
        inputs,
        tuple(_of_graph(read, graph.outputs)),
        found,
        tuple(notes),
        plan,
        command,
    )


def numbers(graph: Graph) -> str:
    """Return the types of a graph's activations as text, such as ``int8`` or ``float32``.

    A graph is quantized if no operator has float activations, float if no operator has quantized activations, and otherwise partly quantized.
    """
    activations = Counter(
        graph.tensors[name].dtype
        for node in graph.nodes
        for name in (*node.inputs, *node.outputs)
        if name is not None and graph.tensors[name].data is None
    )
    constants = {
        tensor.dtype for tensor in graph.tensors.values() if tensor.data is not None and tensor.quant is not None
    }
    narrow = [dtype for dtype in (DType.INT8, DType.UINT8, DType.INT16) if activations[dtype]]
    if not activations[DType.FLOAT32]:
        return " and ".join(dtype.name.lower() for dtype in narrow) or "integers"
    if narrow:
        return f"partly quantized ({narrow[0].name.lower()}), partly float32"
    return "float32 with int8 weights (dynamic range)" if DType.INT8 in constants else "float32"


def _of_graph(model: LiteRTModel, names: Sequence[str]) -> Iterator[TensorFact]:
    for name in names:
        sizes = tuple("?" if size is None else size for size in input_shapes.open_sizes(model, name))
        yield TensorFact(name, model.graph[name].dtype.name.lower(), sizes)


def _writer(model: Any) -> str:
    """Return the origin of a ``.tflite`` as text: its description, and the oldest runtime version that its operators need."""
    parts = [_text(model.description)]
    for item in model.metadata or []:
        if _text(item.name) == "min_runtime_version":
            data = model.buffers[item.buffer].data
            version = "" if data is None else _text(bytes(bytearray(data)).rstrip(b"\0"))
            parts.append(f"for LiteRT {version} or newer" if version else "")
    return ", ".join(part.rstrip(".") for part in parts if part)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _saved_model(path: Path, _: Form) -> Description:
    return Description(
        "TensorFlow's SavedModel",
        notes=()
        if find_spec("tensorflow")
        else (f"TensorFlow is not installed; where it is, this makes a .tflite: {command_for(path)}",),
        plan="TensorFlow, where it is installed, makes a float .tflite of it in a process of its own; a compile quantizes that with calibration data.",
        command=COMPILE,
    )


# -- ONNX ----------------------------------------------------------------------------------------------------------------


def _onnx(path: Path, form: Form) -> Description:
    try:
        import onnx
    except ModuleNotFoundError:
        return _without(form)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf has errors of its own
        raise InvalidModelError(f"'{path.name}' is no ONNX model, or is damaged: {_first(error)}.") from error
    graph = model.graph
    found = Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}" for node in graph.node
    )
    constants = {tensor.name for tensor in graph.initializer}
    inputs = tuple(_of_onnx(onnx, item) for item in graph.input if item.name not in constants)
    external = sorted(
        {entry.value for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location"}
    )
    missing = [name for name in external if not (path.parent / name).is_file()]
    quantized = any(
        name.endswith("QuantizeLinear") or name.startswith("QLinear") or "Integer" in name for name in found
    )
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
    notes = [f"Its weights are in {', '.join(external)}." if external and not missing else ""]
    if missing:
        notes.append(f"Its weights are in {', '.join(missing)}, which is not in its folder. Put the file there.")
    if model.metadata_props:
        notes.append(f"Its metadata: {', '.join(sorted(item.key for item in model.metadata_props))}.")
    return Description(
        f"ONNX, version {opset} of the operators, {'quantized' if quantized else 'float'}",
        " ".join(part for part in (model.producer_name, model.producer_version) if part),
        inputs,
        tuple(_of_onnx(onnx, item) for item in graph.output),
        found,
        tuple(filter(None, notes)),
        AS_IT_IS if quantized else QUANTIZED_FIRST,
        _with_shapes(inputs),
    )


def _of_onnx(onnx: Any, item: Any) -> TensorFact:
    kind = item.type.tensor_type
    if kind.elem_type and not kind.HasField("shape"):
        sizes: tuple[int | str, ...] = ANY
    else:
        sizes = tuple(one.dim_value if one.dim_value > 0 else one.dim_param or "?" for one in kind.shape.dim)
    known, number = onnx.TensorProto.DataType, kind.elem_type
    name = "no tensor" if not number else known.Name(number).lower() if number in known.values() else str(number)
    return TensorFact(item.name, {"float": "float32", "double": "float64"}.get(name, name), sizes)


def _with_shapes(inputs: Sequence[TensorFact]) -> str:
    """Return the suggested compile command, with an option for each input whose shape is open. The user has to fill in the sizes."""
    given = (f" --input-shape {shlex.quote(item.name)}={_sizes_to_give(item)}" for item in inputs if item.is_open)
    return COMPILE + "".join(given)


def _sizes_to_give(item: TensorFact) -> str:
    if item.sizes == ANY:
        return "SHAPE"
    sizes = enumerate(item.sizes)
    return "x".join(str(size) if isinstance(size, int) else "N" if place else "1" for place, size in sizes)


def _without(form: Form) -> Description:
    """Return the description for a format whose Python package is not installed."""
    return Description(
        form.suffix,
        notes=(f"{form.needs[0]} is not installed, which reads such files.",),
        plan=QUANTIZED_FIRST,
        command=f"pip install 'openneutron[{form.extra}]'",
    )


# -- Keras ---------------------------------------------------------------------------------------------------------------


def _keras(path: Path, _: Form) -> Description:
    with zipfile.ZipFile(path) as archive:
        metadata, config = _json(archive, "metadata.json"), _json(archive, "config.json")
    layers = config["config"].get("layers", [])
    found = Counter(str(layer["class_name"]) for layer in layers if layer["class_name"] != "InputLayer")
    inputs = tuple(
        TensorFact(str(given["name"]), str(given["dtype"]), tuple(size or "?" for size in given["batch_shape"]))
        for given in (layer["config"] for layer in layers if layer["class_name"] == "InputLayer")
    )
    notes = []
    if found["Lambda"]:
        notes.append("It has a Lambda layer, which is code: a compile takes --trust.")
    if not inputs:
        notes.append("It has no fixed inputs. Save a functional or sequential model.")
    return Description(
        f"Keras, {config['class_name']} '{config['config'].get('name', '')}'",
        f"Keras {metadata['keras_version']}",
        inputs,
        operators=found,
        notes=tuple(notes),
        plan=QUANTIZED_FIRST,
        command=_with_shapes(inputs),
    )


# -- PyTorch and ExecuTorch -----------------------------------------------------------------------------------------------

TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
}
"""The types in torch's schema of exported programs (torch/_export/serde/schema.py, ScalarType)."""


def _exported(path: Path, _: Form) -> Description:
    with zipfile.ZipFile(path) as archive:
        program = _json(archive, next(name for name in archive.namelist() if name.endswith("models/model.json")))
    graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
    operators = Counter(
        str(node["target"]).removeprefix("torch.ops.").removesuffix(".default") for node in graph["nodes"]
    )
    quantized = any(name.startswith("quantized_decomposed") for name in operators)
    return Description(
        f"an exported program of PyTorch, {'quantized' if quantized else 'float'}",
        f"torch {program.get('torch_version', '')}".strip(),
        tuple(_of_exported(graph, signature["input_specs"], "user_input")),
        tuple(_of_exported(graph, signature["output_specs"], "user_output")),
        operators,
        plan=AS_IT_IS if quantized else QUANTIZED_FIRST,
        command=COMPILE,
    )


def _of_exported(graph: Any, specs: Any, kind: str) -> Iterator[TensorFact]:
    for spec in specs:
        argument = spec.get(kind, {}).get("arg", {})
        if "as_tensor" in argument:
            name = argument["as_tensor"]["name"]
            value = graph["tensor_values"][name]
            sizes = tuple(size.get("as_int", "?") for size in value["sizes"])
            yield TensorFact(name, TYPES.get(value["dtype"], "other"), sizes)


def _pickled(path: Path, form: Form) -> Description:
    found = file_kind.what_it_is(path)
    if form is forms.YOLO:
        network = next((name for name in found.classes if name.startswith("ultralytics.nn.tasks.")), "")
        return Description(
            f"Ultralytics, {network.rpartition('.')[2] or 'a checkpoint'}", plan=QUANTIZED_FIRST, command=COMPILE
        )
    if found.kind is file_kind.Kind.WEIGHTS:
        return Description(
            "weights of PyTorch without a program (a state dict)",
            plan="A compile needs the module: write a function that returns it with example inputs.",
            command="openneutron compile net.py:function --weights {}",
        )
    if found.kind is not file_kind.Kind.MODULE:
        return Description(
            f"torch.save's form; it {found}", plan="Export the module: torch.export.export, torch.export.save."
        )
    notes = (f"It names {', '.join(found.classes[:4])}, which a load imports.",)
    return Description(
        f"a pickled module of the class {found.classes[0]}",
        notes=notes,
        plan="A pickle may run code of whoever made it: a compile loads it only with --trust. The shapes of its inputs are not in the file.",
        command="openneutron compile {} --trust --input-shape NAME=1x3x224x224",
    )


def _safetensors(path: Path, _: Form) -> Description:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > min(MOST_JSON, path.stat().st_size):
            raise ValueError("its header is longer than the file")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return Description(
        f"weights without a program: {len(header)} tensors",
        plan="A compile needs the module: write a function that returns it with example inputs.",
        command="openneutron compile net.py:function --weights {}",
    )


def _next_command(path: Path) -> str:
    """Return the suggested command for a compiled file: its report where the file has one, of a language model or of the facts of its
    compile, otherwise a run."""
    from openneutron.features.report.page.data import has_facts
    from openneutron.language.model import is_language_model

    content = path.read_bytes()
    has_report = has_facts(content) or (form_of(path) is forms.PTE and is_language_model(content, path.name))
    return "openneutron report {}" if has_report else "openneutron run {} --random 0"


def _executorch(path: Path, _: Form) -> Description:
    methods = pte.methods(path.read_bytes(), path.name)
    delegates = Counter(f"delegate {delegate.backend}" for method in methods for delegate in method.delegates)
    calls = Counter(
        call.operator for method in methods for call in method.instructions if isinstance(call, pte.KernelCall)
    )
    runs = delegates[f"delegate {pte.BACKEND_ID}"]
    return Description(
        f"ExecuTorch, {len(methods)} method{'s' if len(methods) > 1 else ''} ({', '.join(method.name for method in methods)})",
        inputs=tuple(_of_method(methods[0], methods[0].inputs, "input")),
        outputs=tuple(_of_method(methods[0], methods[0].outputs, "output")),
        operators=delegates + calls,
        plan="It is compiled already."
        if runs
        else f"It is compiled already, and has no {pte.BACKEND_ID} delegate. Compile the model that it was made from.",
        command=_next_command(path) if runs else "",
    )


def _of_method(method: pte.Method, values: Sequence[int], kind: str) -> Iterator[TensorFact]:
    for place, index in enumerate(values):
        value = method.values[index]
        if isinstance(value, pte.TensorValue):
            yield TensorFact(f"{kind} {place}", value.dtype, value.shape)


# -- all -----------------------------------------------------------------------------------------------------------------

DESCRIBED: dict[str, Callable[[Path, Form], Description]] = {
    forms.LITERT.suffix: _litert,
    forms.SAVED_MODEL.suffix: _saved_model,
    forms.ONNX.suffix: _onnx,
    forms.KERAS.suffix: _keras,
    forms.PT2.suffix: _exported,
    forms.PT.suffix: _pickled,
    forms.SAFETENSORS.suffix: _safetensors,
    forms.PTE.suffix: _executorch,
}
"""The functions that read a file of a format and describe it. Other formats are described by their row alone."""


def _json(archive: zipfile.ZipFile, name: str) -> Any:
    """Return the parsed JSON of a file in an archive."""
    with archive.open(name) as file:
        text = file.read(MOST_JSON + 1)
    if len(text) > MOST_JSON:
        raise ValueError(f"{name} is longer than {MOST_JSON} bytes")
    return json.loads(text)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
