# SPDX-License-Identifier: BSD-3-Clause
"""Read a ``.pt2`` file of torch.export.save as data: nothing in the file is executed.

``torch.export.load`` (2.13) unpickles sample inputs, weights and constants of some kinds. ``torch._export.serde`` and ``torch.fx`` trust
the strings in the JSON of the program. Names of nodes, arguments and attributes go into Python source that
``GraphModule.recompile`` executes. Guards go into source that ``_convert_guards_code_to_fn`` executes. Size expressions go to
``sympy.sympify``, which evaluates them. Targets of calls are any attribute of ``torch`` (such as ``torch.os.system``), and tree
specifications import modules by name.

This module checks the archive first, accepts a string only in the form that ``torch.export.save`` writes, and gives torch's own loader
exactly the checked bytes.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import io
import json
import math
import operator
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._export.serde import schema
from torch._export.serde.serialize import _SYM_OPS, _bytes_to_dataclass
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import PT2ArchiveReader, load_pt2
from torch.utils import _pytree as pytree

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.litert.input_shapes import check_sizes, open_shape
from openneutron.pytorch.source.file_kind import what_it_is

SEED = 0
"""The seed of the values."""

MOST_ELEMENTS = 1 << 28
"""The most elements of an input, so that a damaged shape takes no memory."""


def example_input(
    name: str,
    model: str,
    sizes: Sequence[int | str | None],
    given: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return a random tensor for an input. Integers and booleans are 0 or 1.

    Args:
        name: The input's name.
        model: The model's name in messages.
        sizes: The size of each axis; a name or None where the file leaves it open. If the first of several axes is
            open, it is the batch and gets the size 1.
        given: The shape that the user gives.
        dtype: The type.

    Raises InvalidOptionError where the user's shape does not fit, InvalidModelError where a size is missing or there are too many elements.
    """
    if given is not None:
        check_sizes(name, model, sizes, given)
    shape = list(sizes if given is None else given)
    if len(shape) > 1 and not isinstance(shape[0], int):
        shape[0] = 1
    known = [size for size in shape if isinstance(size, int)]
    if len(known) < len(shape):
        raise open_shape(name, model, sizes, shape)
    if (count := math.prod(known)) > MOST_ELEMENTS:
        raise InvalidModelError(
            f"'{model}': the input '{name}' has {count} elements; at most {MOST_ELEMENTS} are taken."
        )
    generator = torch.Generator().manual_seed(SEED)
    if dtype.is_floating_point:
        return torch.randn(known, generator=generator).to(dtype)
    return torch.randint(0, 2, known, generator=generator).to(dtype)


class NeedsTrust(Exception):
    """Raised for a file whose loading may run code that its author chose. The message is the reason."""


class NotRegistered(Exception):
    """Raised for an operator or a class that no imported module has registered.

    ``module`` is the name of the module that may register it.
    """

    def __init__(self, reason: str, module: str = "MODULE") -> None:
        super().__init__(reason)
        self.module = module


HIGHER_ORDER = frozenset(
    (
        "associative_scan", "auto_functionalized", "auto_functionalized_v2", "cond", "flex_attention", "invoke_subgraph",
        "map_impl", "out_dtype", "scan", "strict_mode", "tag_activation_checkpoint", "while_loop", "wrap",
        "wrap_activation_checkpoint", "wrap_with_autocast", "wrap_with_set_grad_enabled",
    )
)  # fmt: skip
"""Higher-order operators that call nothing but operators and graphs of the same program."""

PREDISPATCH = frozenset(
    (
        "_add_batch_dim",
        "_remove_batch_dim",
        "_vmap_increment_nesting",
        "_vmap_decrement_nesting",
        "lazy_load_decompositions",
    )
)
"""Functions of torch._functorch.predispatch that torch.export leaves in programs with ``torch.vmap``."""

FUNCTIONS = frozenset(
    (
        "Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "ExprCondPair", "Float", "FloatPow",
        "FloatTrueDiv", "FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "Identity", "IntTrueDiv", "Integer",
        "IsNonOverlappingAndDenseIndicator", "LShift", "Le", "LessThan", "Lt", "Max", "Min", "Mod", "ModularIndexing", "Mul",
        "Ne", "Not", "Or", "Piecewise", "Pow", "PowByNatural", "PythonMod", "RShift", "Rational", "RoundDecimal", "RoundToInt",
        "StrictGreaterThan", "StrictLessThan", "Symbol", "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where",
        "cast_symbool_to_symint_guardless", "ceiling", "floor", "max", "min",
    )
)  # fmt: skip
"""The names of the functions that size expressions and guards may call."""

METHODS = frozenset(
    ("size", "stride", "storage_offset", "isnan", "floor", "ceil", "trunc", "sqrt", "inf", "sym_max", "sym_min")
)
"""The attributes of tensors, ``math`` and ``torch`` that guards may use."""

_SYNTAX = (
    ast.Expression, ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Call, ast.keyword, ast.Load,
    ast.boolop, ast.cmpop, ast.operator, ast.unaryop,
)  # fmt: skip

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[^'\"\\{}\x00-\x1f\x7f\x85\u2028\u2029]*")
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?")


def check_program(content: bytes) -> None:
    """Check each string in the JSON of a program by the rule for its field. torch's own parser parses the JSON.

    Raises NeedsTrust for a string that may let torch execute or import something, and NotRegistered for an unknown operator or an
    unknown class of inputs or outputs.
    """
    _walk(_bytes_to_dataclass(schema.ExportedProgram, content), "", False)


def _walk(value: Any, field: str, in_call: bool) -> None:
    """Check the value of a field and all values inside it. ``in_call``: the value belongs to a call, whose string arguments are
    not checked because torch passes them on unchanged."""
    if isinstance(value, schema.CustomObjArgument):
        raise NeedsTrust("it has an argument that is an object of a class of its own")
    if isinstance(value, schema.Graph):
        for given in value.inputs:  # torch writes the values of constant inputs into guards
            if isinstance(given.value, str):
                _plain(given.value)
    if isinstance(value, schema._Union):
        _walk(value.value, str(value.type), in_call)
    elif dataclasses.is_dataclass(value):
        of_call = in_call or isinstance(value, schema.Node)
        # Metadata stays text: it names the place in the model's source.
        free = {"metadata"} if isinstance(value, (schema.Node, schema.GraphModule)) else set()
        for name in (item.name for item in dataclasses.fields(value) if item.name not in free):
            _walk(getattr(value, name), name, of_call)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _plain(key)
            _walk(item, "", in_call)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _walk(item, field, in_call)
    elif isinstance(value, str) and not (in_call and field in ("as_string", "as_strings")):
        _RULES.get(field, _plain)(value)


def _name(text: str) -> None:
    if text and not _NAME.fullmatch(text):
        raise NeedsTrust(f"it has {_quoted(text)} for a name")


def _plain(text: str) -> None:
    if not _PLAIN.fullmatch(text):
        raise NeedsTrust(f"it has {_quoted(text)} for a name")


def _target(text: str) -> None:
    found = _OPERATOR.fullmatch(text)
    if found is None:
        module, _, name = text.partition(".")
        function = getattr({"_operator": operator, "math": math, "torch": torch}.get(module), name, None)
        if function not in _SYM_OPS and text.removeprefix("torch._functorch.predispatch.") not in PREDISPATCH:
            raise NeedsTrust(f"it calls {_quoted(text)}, which is no operator")
        return
    namespace, name, overload = found.groups()
    if namespace == "higher_order":
        if name not in HIGHER_ORDER or overload is not None:
            raise NeedsTrust(f"it calls {_quoted(text)}, which may run more than the program's own graphs")
        return
    called = getattr(getattr(getattr(torch.ops, namespace), name, None), overload or "default", None)
    if not isinstance(called, torch._ops.OpOverload) or overload is None:
        raise NotRegistered(f"it calls {_quoted(text)}, an operator that is not registered here")
    if any("file" in item.name for item in called._schema.arguments):
        raise NeedsTrust(f"it calls {_quoted(text)}, which reads or writes files")


def _expression(text: str) -> None:
    """Raise NeedsTrust for a text that is neither a size expression, as sympy writes it, nor a guard."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise NeedsTrust(f"it has {_quoted(text)} for a size or a guard") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            fine = not isinstance(node.value, str) or bool(_PLAIN.fullmatch(node.value))
        elif isinstance(node, ast.Attribute):
            fine = node.attr in METHODS
        elif isinstance(node, ast.Call):
            fine = isinstance(node.func, ast.Attribute) or (
                isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
            )
            # A symbol's name goes into the source of guards.
            if isinstance(node.func, ast.Name) and node.func.id == "Symbol":
                fine = isinstance(node.args[0], ast.Constant) and bool(_NAME.fullmatch(str(node.args[0].value)))
        elif isinstance(node, ast.Name):
            fine = bool(_NAME.fullmatch(node.id))
        else:
            fine = isinstance(node, _SYNTAX)
        if not fine:
            raise NeedsTrust(f"it has {_quoted(text)} for a size or a guard")


def _tree(text: str) -> None:
    _spec(json.loads(text)[1])


def _spec(spec: Mapping[str, Any]) -> None:
    kind, context = spec["type"], spec["context"]
    if kind is not None:
        if kind not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            raise _class(kind)
        if isinstance(context, str) and kind != "collections.namedtuple":
            context = json.loads(context)
        if kind == "collections.namedtuple" and context not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            raise _class(str(context))
        _context(context)
    for child in spec["children_spec"]:
        _spec(child)


def _context(value: Any) -> None:
    if isinstance(value, Mapping):
        if "__enum__" in value:
            _enumerator(str(value["fqn"]))
        if "default_factory_module" in value:
            factory = f"{value['default_factory_module']}.{value['default_factory_name']}"
            if factory not in ("builtins.list", "builtins.dict", "builtins.int", "builtins.float"):
                raise NeedsTrust(f"its defaultdict calls {_quoted(factory)}")
        for key, item in value.items():
            _plain(key)
            _context(item)
    elif isinstance(value, list):
        for item in value:
            _context(item)
    elif isinstance(value, str):
        _plain(value)


def _enumerator(name: str) -> None:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        raise _class(f"{module}.{path}")


def _class(name: str) -> NotRegistered:
    module = name.rpartition(".")[0]
    likely = module if re.fullmatch(r"\w+(\.\w+)*", module) else "MODULE"
    return NotRegistered(f"its inputs or outputs have the class {_quoted(name)}, which is not registered here", likely)


def _quoted(text: str) -> str:
    """Return a text of the file in quotes for a message, escaped and at most ``LONGEST_QUOTE`` characters long."""
    shown = text.encode("unicode_escape").decode("ascii")
    return f"'{shown}'" if len(shown) <= LONGEST_QUOTE else f"'{shown[:LONGEST_QUOTE]}...'"


LONGEST_QUOTE = 100
"""The largest number of characters of a text from the file that a message shows."""

_RULES: Mapping[str, Callable[[str], None]] = {
    "name": _name,
    "as_name": _name,
    "forward_arg_names": _name,
    "user_input_name": _name,
    "target": _target,
    "as_operator": _target,
    "expr_str": _expression,
    "guards_code": _expression,
    "in_spec": _tree,
    "out_spec": _tree,
}
"""The checks of strings by field of ``torch._export.serde.schema``. ``_plain`` checks the strings of all other fields: they have no
quotes, backslashes, braces or control characters."""


def unsafe_payload(config: Mapping[str, Any]) -> Collection[str]:
    """Return the names of weights or constants in a payload's JSON that torch would unpickle."""
    return [
        name
        for name, item in config["config"].items()
        if item["use_pickle"] or str(item["path_name"]).startswith(("custom_obj_", "opaque_obj_"))
    ]


MODEL = "model"
"""The name of the program in the archive of torch.export.save."""

PROGRAM = f"models/{MODEL}.json"
PAYLOADS = {
    "weight": f"data/weights/{MODEL}_weights_config.json",
    "constant": f"data/constants/{MODEL}_constants_config.json",
}
PICKLES = (f"data/sample_inputs/{MODEL}.pt", f"data/weights/{MODEL}.pt", f"data/constants/{MODEL}.pt")
"""Records that torch unpickles with ``weights_only``, and without it where that fails. Older releases wrote the last two."""

TRUST = "If you know who made the file, load it with --trust (trust=True)"


def load_exported(path: Path, trust: bool = False, imports: Sequence[str] = ()) -> ExportedProgram:
    """Return the program in a ``.pt2`` file that ``torch.export.save`` wrote.

    Nothing in the file is executed, unless ``trust`` permits it. ``imports`` are modules to import first, which is
    code: they register the classes of the program's inputs and outputs with pytree, or the operators of a library.

    Raises InvalidModelError where the file is no such program, or can only be loaded by running code in it;
    InvalidOptionError where a module can't be imported.
    """
    for module in imports:
        import_module(module)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"'{path}' can't be read: {error.strerror}.") from error
    try:
        if not trust:
            _check(data)
            program = load_pt2(io.BytesIO(data)).exported_programs[MODEL]
        else:
            with suppressed():  # torch's own warning of this fails to be formatted
                program = torch.export.load(io.BytesIO(data))
        program.module(check_guards=False)  # checks what the loader does not, such as the list of modules
        return program
    except NeedsTrust as reason:
        raise InvalidModelError(
            f"'{path.name}' is not loaded: {reason}, so that loading it may run code of whoever made it. {TRUST}, or export the "
            "model again without that."
        ) from reason
    except NotRegistered as reason:
        raise InvalidModelError(
            f"'{path.name}': {reason}. Name the module that registers it: --import {reason.module} (imports=)."
        ) from reason
    except Exception as error:  # torch's loader declares none of what a damaged file makes it raise
        raise InvalidModelError(
            f"'{path.name}' {what_it_is(path)}; a program that torch.export.save wrote is needed here: "
            "torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
        ) from error


def import_module(module: str) -> None:
    """Import a user's module. Raise InvalidOptionError where the import fails.

    The current folder is searched last, so that its modules hide no installed module.
    """
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        importlib.import_module(module)
    # A user's module may raise anything, and end with sys.exit.
    except (Exception, SystemExit) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidOptionError(f"--import: '{module}' can't be imported: {words}.") from error
    finally:
        sys.path.remove(here)


def _check(data: bytes) -> None:
    """Check each record of the archive that torch's loader interprets, with the parsers of the loader.

    Raises NeedsTrust and NotRegistered as ``check_program`` does, and ValueError for an archive without exactly one program.
    """
    reader = PT2ArchiveReader(io.BytesIO(data))
    names = reader.get_file_names()
    if any(name.startswith("data/aotinductor/") for name in names):
        raise NeedsTrust("it holds native code that AOTInductor compiled")
    if [name for name in names if name.startswith("models/")] != [PROGRAM]:
        raise ValueError(f"not one program under {PROGRAM}")
    for name in PICKLES:
        if name in names:
            _check_pickle(name, reader.read_bytes(name))
    for what, name in PAYLOADS.items():
        if name in names:
            for entry in unsafe_payload(json.loads(reader.read_string(name))):
                raise NeedsTrust(f"its {what} {entry!r} is a pickled object")
    check_program(reader.read_bytes(PROGRAM))


def _check_pickle(name: str, content: bytes) -> None:
    """Raise NeedsTrust where a pickle holds anything but tensors, numbers, text and containers of these."""
    if not content:
        return
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise NeedsTrust(f"'{name}' in it is a pickle {_named(content)}") from error


def _named(content: bytes) -> str:
    try:
        found: list[Any] = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
    except Exception:  # damaged, or of a protocol that torch does not take apart
        found = []
    listed = ", ".join(sorted(map(str, found))[:NAMES_SHOWN])
    return f"that names {listed}" if found else "of more than tensors"


NAMES_SHOWN = 4
