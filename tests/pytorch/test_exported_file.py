# SPDX-License-Identifier: BSD-3-Clause
"""A ``.pt2`` is data: any part of it that torch would execute is refused, in each place where it can occur."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.pytorch.graph import program
from openneutron.pytorch.source.exported_file import load_exported

SAMPLES = "data/sample_inputs/model.pt"
PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
END = ", so that loading it may run code of whoever made it. If you know who made the file, load it with --trust (trust=True), or export the model again without that."


class Evil:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a-b": nn.Conv2d(3, 4, 3)})

    def forward(self, x: dict[str, torch.Tensor], y: torch.Tensor, *, mode: str = "a") -> dict[str, torch.Tensor]:
        with torch.no_grad():
            z = self.parts["a-b"](x["p q"])
        z = torch.einsum("bchw,bc->bh", z, y)
        return {"out": z, "flat": (z + 1).view(z.shape[0], -1)}


Records = dict[str, bytes]


@pytest.fixture(scope="module")
def records() -> Records:
    """Return an archive's records: dynamic shapes, a graph inside a graph, names that are no identifiers, text for an
    input."""
    batch = torch.export.Dim("batch", max=64)
    shapes = {"x": {"p q": {0: batch, 2: torch.export.Dim("h", min=6, max=100)}}, "y": {0: batch}, "mode": None}
    inputs = ({"p q": torch.randn(2, 3, 8, 8)}, torch.randn(2, 4))
    program = torch.export.export(Net(), inputs, {"mode": "b"}, dynamic_shapes=shapes)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    with zipfile.ZipFile(stream) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def written(path: Path, records: Records) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(f"model/{name}", content)
    return path


def pickled(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def edited(records: Records, name: str, edit: Callable[[Any], None]) -> Records:
    data = json.loads(records[name])
    edit(data)
    return records | {name: json.dumps(data).encode()}


def test_what_torch_export_saved_is_loaded(records: Records, tmp_path: Path) -> None:
    program = load_exported(written(tmp_path / "net.pt2", records))
    assert program.example_inputs[1] == {"mode": "b"}
    assert program._guards_code != []
    given = {"p q": torch.randn(3, 3, 9, 8)}, torch.randn(3, 4)
    assert program.module()(*given, mode="b")["flat"].shape == (3, 7)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (SAMPLES, f"'{SAMPLES}' in it is a pickle that names posix.mkdir"),
        ("data/weights/model.pt", "'data/weights/model.pt' in it is a pickle that names posix.mkdir"),
        ("data/constants/model.pt", "'data/constants/model.pt' in it is a pickle that names posix.mkdir"),
        (WEIGHTS, "its weight 'parts.a-b.weight' is a pickled object"),
        (CONSTANTS, "its constant 'pickled' is a pickled object"),
        ("custom_obj_0", "its constant 'pickled' is a pickled object"),
        ("opaque_obj_0", "its constant 'pickled' is a pickled object"),
    ],
)
def test_a_pickle_is_not_unpickled(records: Records, tmp_path: Path, place: str, reason: str) -> None:
    marker = tmp_path / "marker"
    evil = pickled(Evil(marker))
    if place == WEIGHTS:
        evils = edited(records, WEIGHTS, lambda data: data["config"]["parts.a-b.weight"].update(use_pickle=True))
        evils["data/weights/weight_0"] = evil
    elif place.endswith((".pt",)):
        evils = records | {place: evil}
    else:
        file = "tensor_0" if place == CONSTANTS else place
        entry = {"path_name": file, "is_param": False, "use_pickle": place == CONSTANTS, "tensor_meta": None}
        evils = edited(records, CONSTANTS, lambda data: data["config"].update(pickled=entry))
        evils[f"data/constants/{file}"] = evil
    with pytest.raises(InvalidModelError) as caught:
        load_exported(written(tmp_path / "evil.pt2", evils))
    assert str(caught.value) == f"'evil.pt2' is not loaded: {reason}{END}"
    assert not marker.exists()


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(InvalidModelError, match=r"^'/proc/self/mem' can't be read: Input/output error\.$"):
        load_exported(Path("/proc/self/mem"))


def test_trust_unpickles(records: Records, tmp_path: Path) -> None:
    """The attack above works: with trust, the file runs its author's code."""
    marker = tmp_path / "marker"
    path = written(tmp_path / "evil.pt2", records | {SAMPLES: pickled((Evil(marker),))})
    load_exported(path, trust=True)
    assert marker.exists()


def _placeholder(data: Any, text: str) -> None:
    data["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = text


def _target(data: Any, text: str) -> None:
    data["graph_module"]["graph"]["nodes"][-1]["target"] = text


def _size(data: Any, text: str) -> None:
    data["graph_module"]["graph"]["sym_int_values"] = {"s": {"as_expr": {"expr_str": text, "hint": None}}}


def _size_by_an_odd_name(data: Any, text: str) -> None:
    """A tensor may have the name of a field."""
    data["graph_module"]["graph"]["sym_int_values"] = {"metadata": {"as_expr": {"expr_str": text}}}


def _argument_by_an_odd_name(data: Any, text: str) -> None:
    call = {"target": {"as_int": 1}, "inputs": {"as_int": 1}, "metadata": {"as_operator": text}}
    data["graph_module"]["graph"]["nodes"][-1]["inputs"][0]["arg"] = {"as_string_to_argument": call}


def _number(data: Any, text: str) -> None:
    """The parser accepts text where it expects a number."""
    data["graph_module"]["graph"]["inputs"][-1] = {"as_int": text}


def _custom(data: Any, text: str) -> None:
    data["graph_module"]["graph"]["nodes"][-1]["inputs"][0]["arg"] = {"as_custom_obj": {"name": "o", "class_fqn": text}}


def _guard(data: Any, text: str) -> None:
    data["guards_code"] = [text]


def _tree(data: Any, text: str) -> None:
    data["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = text


def _argument(data: Any, text: str) -> None:
    data["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"][0] = text


def _constant(data: Any, text: str) -> None:
    data["graph_module"]["graph"]["inputs"][-1]["as_string"] = text


def _buffer(data: Any, text: str) -> None:
    data["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = text


DEFAULT = '[1, {"type": "collections.defaultdict", "children_spec": [], "context": {"default_factory_module": "os", "default_factory_name": "abort", "dict_context": []}}]'


@pytest.mark.parametrize(
    ("edit", "text", "reason"),
    [
        (_placeholder, "x=print(1)", "it has 'x=print(1)' for a name"),
        (_argument, "x=print(1)", "it has 'x=print(1)' for a name"),
        (_constant, "b' or print(1) or '", "it has 'b' or print(1) or '' for a name"),
        (_buffer, 'a"b', "it has 'a\"b' for a name"),
        (_target, "torch.os.system", "it calls 'torch.os.system', which is no operator"),
        (_target, "_operator.call", "it calls '_operator.call', which is no operator"),
        (_target, "#a:b", "it calls '#a:b', which is no operator"),
        (
            _target,
            "torch.ops.aten.from_file.default",
            "it calls 'torch.ops.aten.from_file.default', which reads or writes files",
        ),
        (
            _target,
            "torch.ops.higher_order.call_torchbind",
            "it calls 'torch.ops.higher_order.call_torchbind', which may run more than the program's own graphs",
        ),
        (_size, "print(1)", "it has 'print(1)' for a size or a guard"),
        (_size, "Symbol('a b')", "it has 'Symbol('a b')' for a size or a guard"),
        (_size, "[c for c in s.mro]", "it has '[c for c in s.mro]' for a size or a guard"),
        (_size_by_an_odd_name, "print(1)", "it has 'print(1)' for a size or a guard"),
        (_argument_by_an_odd_name, "torch.os.system", "it calls 'torch.os.system', which is no operator"),
        (_number, "b' or print(1) or '", "it has 'b' or print(1) or '' for a name"),
        (_custom, "__torch__.X", "it has an argument that is an object of a class of its own"),
        (_guard, "L['x'].__class__ == 1", "it has 'L['x'].__class__ == 1' for a size or a guard"),
        (_guard, "1) or (", "it has '1) or (' for a size or a guard"),
        (_tree, DEFAULT, "its defaultdict calls 'os.abort'"),
    ],
)
def test_text_that_torch_would_run(
    records: Records, tmp_path: Path, edit: Callable[[Any, str], None], text: str, reason: str
) -> None:
    evils = edited(records, PROGRAM, lambda data: edit(data, text))
    with pytest.raises(InvalidModelError) as caught:
        load_exported(written(tmp_path / "evil.pt2", evils))
    assert str(caught.value) == f"'evil.pt2' is not loaded: {reason}{END}"


def test_native_code_is_not_loaded(records: Records, tmp_path: Path) -> None:
    path = written(tmp_path / "evil.pt2", records | {"data/aotinductor/model/x.so": b"\x7fELF"})
    with pytest.raises(InvalidModelError) as caught:
        load_exported(path)
    assert str(caught.value) == f"'evil.pt2' is not loaded: it holds native code that AOTInductor compiled{END}"


@pytest.mark.parametrize("target", ["torch.ops.load_library.__call__.x", "torch.ops.nobodys.op.default"])
def test_an_operator_that_is_not_registered_names_the_option(records: Records, tmp_path: Path, target: str) -> None:
    path = written(tmp_path / "net.pt2", edited(records, PROGRAM, lambda data: _target(data, target)))
    with pytest.raises(InvalidModelError) as caught:
        load_exported(path)
    assert str(caught.value) == (
        f"'net.pt2': it calls '{target}', an operator that is not registered here. Name the module that registers it: "
        "--import MODULE (imports=)."
    )


CLASSES = """
import torch
from torch.utils import _pytree

class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

_pytree.register_pytree_node(
    Pair,
    lambda pair: ([pair.a, pair.b], None),
    lambda leaves, _: Pair(*leaves),
    serialized_type_name="pairs_of_tensors.Pair",
)

class Net(torch.nn.Module):
    def forward(self, x):
        return Pair(x + 1, x * 2)
"""


def test_classes_of_outputs_come_from_a_module_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file names the class; --import names the module that registers it, here one in the current folder."""
    from torch.utils import _pytree as pytree

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs_of_tensors.py").write_text(CLASSES)
    scope: dict[str, Any] = {"__name__": "elsewhere"}
    exec(CLASSES, scope)
    torch.export.save(torch.export.export(scope["Net"](), (torch.zeros(2),)), tmp_path / "net.pt2")
    pytree._deregister_pytree_node(scope["Pair"])
    with pytest.raises(InvalidModelError) as caught:
        load_exported(tmp_path / "net.pt2")
    assert str(caught.value) == (
        "'net.pt2': its inputs or outputs have the class 'pairs_of_tensors.Pair', which is not registered here. Name "
        "the module that registers it: --import pairs_of_tensors (imports=)."
    )
    with pytest.raises(InvalidOptionError) as refused:
        load_exported(tmp_path / "net.pt2", imports=("no_such_module",))
    assert str(refused.value) == (
        "--import: 'no_such_module' can't be imported: ModuleNotFoundError: No module named 'no_such_module'."
    )
    program = load_exported(tmp_path / "net.pt2", imports=("pairs_of_tensors",))
    assert program.module()(torch.ones(2)).b.tolist() == [2, 2]


def _name_the_program(data: Any) -> None:
    """The first module of a program has no name. The loader takes any."""
    data["graph_module"]["module_call_graph"][0]["fqn"] = "x"


def test_a_damaged_archive(records: Records, tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"PK\3\4 and no more")
    cut = written(tmp_path / "cut.pt2", records | {PROGRAM: records[PROGRAM][:100]})
    named = written(tmp_path / "named.pt2", edited(records, PROGRAM, _name_the_program))
    for path, what in (
        (tmp_path / "net.pt2", "is no file of PyTorch's, or damaged"),
        (cut, "is damaged, or of another version of PyTorch"),
        (named, "is damaged, or of another version of PyTorch"),
    ):
        with pytest.raises(InvalidModelError) as caught:
            load_exported(path)
        assert str(caught.value).startswith(f"'{path.name}' {what}; a program that torch.export.save wrote")


@pytest.mark.parametrize("note", [(), ("f",), ("f", 3), ("f", "a", "b"), "fg", 7])
def test_a_note_of_the_user_s_call_that_has_another_form_is_not_read(note: object) -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["torch_fn"] = note
    assert (program.written(node), program.call_of(node)) == ("", "")
