# SPDX-License-Identifier: BSD-3-Clause
"""What torch does faster in the tests has the results of torch's own functions."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch._export import utils
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import default_decompositions, exported_program
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils import _traceback

from tests.support.composite_operators import MOST_CODES, PATCHED, compiled_once

OTHER = "torch has other functions now: see tests/support/composite_operators.py"


def test_the_list_is_torchs_own() -> None:
    listed = exported_program._collect_all_valid_cia_ops
    own = inspect.unwrap(listed)
    assert own is not listed, OTHER
    assert listed() == listed() == own() != set()
    library = torch.library.Library("of_this_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    assert torch.ops.of_this_test.twice.default in listed() == own()
    assert utils._materialize_cpp_cia_ops.__module__ == utils.__name__
    assert len(default_decompositions()) > 0


def tables() -> dict[Any, Any]:
    """Return the names of each composite operator's kernels, and of its rule for fake tensors."""
    return {
        op: (
            {key: _name(kernel) for key, kernel in op.py_kernels.items()},
            _name(op_implementations_dict.get(op)),
        )
        for op in exported_program._collect_all_valid_cia_ops()
    }


def _name(function: Any) -> str:
    function = getattr(function, "func", function)
    return str(getattr(function, "__qualname__", function))


def test_the_tables_of_operators_are_torchs_own() -> None:
    """Each second time the tables are those that were kept."""
    shortened = exported_program._override_composite_implicit_decomp
    own = shortened.__wrapped__
    assert hasattr(own, "__wrapped__"), OTHER
    preserved = dict.fromkeys(exported_program._collect_all_valid_cia_ops(), utils._special_op_to_preserve_cia)
    linear = torch.ops.aten.linear.default
    decomposed = {**preserved, linear: lambda x, weight, bias: x}
    with own(preserved):  # torch forgets its own rules for fake tensors the first time
        pass
    before = tables()
    for given in (preserved, decomposed, preserved, decomposed):
        with own(given):
            expected = tables()
        with shortened(given):
            assert tables() == expected != before
            assert linear.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd] is given[linear]
        assert tables() == before
        assert not any(op._dispatch_cache for op in given)


def test_equal_sources_have_one_code() -> None:
    first, second, other = (
        compiled_once(text, name, "exec") for text, name in (("a = 1", "x"), ("a = 1", "y"), ("a = 2", "z"))
    )
    assert (first, first.co_filename) == (second, "x")
    found: dict[str, int] = {}
    exec(other, found)
    assert found["a"] == 2
    for number in range(MOST_CODES):
        compiled_once(f"a = {number + 3}", "many", "exec")
    assert compiled_once("a = 1", "again", "exec").co_filename == "again"
    assert torch.fx.graph_module.compile is compiled_once, OTHER


class _Two(torch.nn.Module):
    # Without annotations: torch can't pickle those that are text.
    def forward(self, x):  # type: ignore[no-untyped-def]
        return (x + 1).relu()


def test_a_source_is_compiled_when_it_is_read() -> None:
    assert inspect.unwrap(torch.fx.GraphModule.recompile) is not torch.fx.GraphModule.recompile, OTHER
    x = torch.randn(3)
    module = torch.fx.symbolic_trace(_Two())
    assert "_code" not in vars(module)
    assert torch.equal(module(x), (x + 1).relu())
    before = vars(module)["_code"]
    (add,) = (node for node in module.graph.nodes if node.target is operator.add)
    add.args = (add.args[0], 2)
    assert torch.equal(module(x), (x + 1).relu()), "no recompile"
    module.recompile()
    assert "_code" not in vars(module)
    assert torch.equal(copy.deepcopy(module)(x), (x + 2).relu())
    assert torch.equal(pickle.loads(pickle.dumps(module))(x), (x + 2).relu())
    assert module.recompile().src == module.code != before
    assert list(inspect.signature(module.forward).parameters) == ["x"]
    assert torch.equal(module(x), (x + 2).relu())
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
        module()


class _Nested(torch.nn.Module):
    """Notes how torch's class of all modules is while it is traced, and fails if asked to."""

    def __init__(self, failing: bool = False) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 2), _Two())
        self.failing, self.methods = failing, []

    def forward(self, x):  # type: ignore[no-untyped-def]
        self.methods.append([vars(torch.nn.Module)[name] for name in PATCHED])
        assert not self.failing
        return self.inner(x)


def test_modules_are_traced_without_a_change_of_their_class() -> None:
    before = [vars(torch.nn.Module)[name] for name in PATCHED]
    assert all(method.__wrapped__ for method in before), OTHER
    module, x = _Nested(), torch.randn(1, 3)
    traced = torch.fx.symbolic_trace(module)
    assert [node.op for node in traced.graph.nodes] == [
        "placeholder",
        "call_module",
        "call_function",
        "call_method",
        "output",
    ]
    with pytest.raises(AssertionError):
        torch.fx.symbolic_trace(_Nested(failing=True))
    exported = torch.export.export(module, (x,), strict=True)
    assert torch.equal(traced(x), module(x)) and torch.equal(exported.module()(x), module(x))
    assert module.methods[0] == module.methods[-1] == before
    with pytest.raises(AttributeError, match=r"'_Nested' object has no attribute 'outer'"):
        _ = module.outer


def test_frames_are_torchs_own() -> None:
    extract = _traceback._extract_symbolized_tb
    assert hasattr(extract, "__wrapped__"), OTHER
    (found,) = torch._C._profiler.symbolize_tracebacks([_traceback.CapturedTraceback.extract().tb])
    own = extract.__wrapped__(found, 2)
    assert extract(found, 2) == extract(found, 2) == own
    assert extract(found, 2).format() == own.format()
    assert len(own) > 10


def test_the_place_of_a_node_in_its_source_is_that_of_the_module() -> None:
    exported = torch.export.export(_Nested(), (torch.randn(1, 3),))
    places = [
        node.meta["stack_trace"].splitlines()[-1].strip() for node in exported.graph.nodes if node.op == "call_function"
    ]
    assert places == ["return F.linear(input, self.weight, self.bias)", *["return (x + 1).relu()"] * 2]


def test_the_origin_of_a_node_is_not_copied() -> None:
    origin = NodeSource(None, "of_this_test", NodeSourceAction.CREATE)
    assert copy.deepcopy([origin]) == [origin], OTHER
    assert vars(origin).keys() == {"pass_name", "action", "node_info", "from_node", "_action_string", "_dict"}, OTHER
