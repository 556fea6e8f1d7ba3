# SPDX-License-Identifier: BSD-3-Clause
"""Partitions are as few as can be, never wait for each other, and every node on the CPU has its reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.compiler.legalize.partition import OnHost, OnNpu, Partitioning, extract, partition
from openneutron.ir import DType, Graph, Node, Tensor, constant
from tests.support.oracle import activation, graph_of

NO_KERNEL = "there is no kernel for GATHER"
LIST = "See docs/supported-ops.md for those there are."


def net(*nodes: Node, inputs: Sequence[str] = ("x",), outputs: Sequence[str] | None = None) -> Graph:
    """A graph over int8[1,4,4,8] tensors, whatever the nodes are."""
    names = {name for node in nodes for name in (*node.inputs, *node.outputs) if name is not None}
    others = [activation(name, (1, 4, 4, 8)) for name in sorted(names - set(inputs))]
    return graph_of([activation(name, (1, 4, 4, 8)) for name in inputs], nodes, others, outputs)


def on_npu(output: str, *inputs: str) -> Node:
    """A node the operator table accepts."""
    if len(inputs) == 1:
        return Node("relu", inputs, (output,))
    return Node("add", inputs, (output,), {"activation": "NONE"})


def on_cpu(output: str, *inputs: str) -> Node:
    """A node it has no row for."""
    return Node("GATHER", inputs, (output,))


def view(output: str, data: str) -> Node:
    return Node("reshape", (data,), (output,), {"new_shape": (1, 4, 4, 8)})


def shown(graph: Graph, found: Partitioning) -> list[str]:
    """Each step as its nodes' outputs: a partition in brackets."""
    steps = []
    for step in found.steps:
        if isinstance(step, OnHost):
            steps.append(graph.nodes[step.node].name)
        else:
            steps.append(f"[{' '.join(graph.nodes[i].name for i in found.partitions[step.index].nodes)}]")
    return steps


def test_a_graph_of_accepted_nodes_is_one_partition() -> None:
    graph = net(on_npu("a", "x"), on_npu("b", "x", "a"), on_npu("c", "b"))
    found = partition(graph)
    assert shown(graph, found) == ["[a b c]"]
    assert found.on_cpu == ()
    (part,) = found.partitions
    assert (part.graph.inputs, part.graph.outputs) == (("x",), ("c",))


def test_a_residual_around_a_rejected_node_is_not_closed_into_a_cycle() -> None:
    graph = net(on_npu("a", "x"), on_cpu("b", "a"), on_npu("c", "b"), on_npu("d", "a", "c"))
    found = partition(graph)
    assert shown(graph, found) == ["[a]", "b", "[c d]"]
    assert [str(item) for item in found.on_cpu] == [f"GATHER 'b' stays on the CPU: {NO_KERNEL}. {LIST}"]
    first, second = (part.graph for part in found.partitions)
    assert (first.inputs, first.outputs) == (("x",), ("a",))
    assert (second.inputs, second.outputs) == (("b", "a"), ("d",))


def test_branches_side_by_side_are_one_partition() -> None:
    graph = net(on_npu("a", "x"), on_cpu("b", "x"), on_npu("c", "x"), on_npu("d", "c", "b"), outputs=("a", "d"))
    found = partition(graph)
    assert shown(graph, found) == ["b", "[a c d]"]
    assert found.partitions[0].graph.outputs == ("a", "d")


def test_rejected_nodes_that_do_not_wait_for_a_partition_cost_none() -> None:
    graph = net(on_cpu("a", "x"), on_npu("b", "x"), on_npu("c", "a", "b"), on_cpu("d", "c"), on_npu("e", "d", "b"))
    assert shown(graph, partition(graph)) == ["a", "[b c]", "d", "[e]"]


def test_nodes_with_effects_keep_their_order() -> None:
    # On data alone the CALL could run first of all; it must not overtake the CUSTOM that it stands behind.
    graph = net(on_npu("a", "x"), Node("CUSTOM log", ("a",), ("b",)), Node("CALL", ("x",), ("c",)), on_npu("d", "c"))
    assert shown(graph, partition(graph)) == ["[a]", "b", "c", "[d]"]


def test_excluded_operators_stay_on_the_cpu_by_any_of_their_names() -> None:
    graph = net(on_npu("a", "x"), on_npu("b", "a", "x"), on_npu("c", "b"))
    for name in ("add", "ADD", "b"):
        found = partition(graph, [name])
        assert shown(graph, found) == ["[a]", "b", "[c]"]
        assert [str(item) for item in found.on_cpu] == ["ADD 'b' stays on the CPU: operators_not_to_delegate names it."]


def test_views_alone_stay_on_the_cpu_and_views_beside_others_do_not() -> None:
    graph = net(view("a", "x"), on_cpu("b", "a"), view("c", "b"), on_npu("d", "c"), on_npu("e", "x"), view("f", "x"),
                outputs=("d", "e", "f"))  # fmt: skip
    found = partition(graph)
    # e and d are one partition although nothing connects them; the reshapes a and f touch neither.
    assert shown(graph, found) == ["a", "b", "[c d e]", "f"]
    reason = "it only gives values another shape, and no operator beside it runs on the NPU"
    assert [str(item) for item in found.on_cpu] == [
        f"RESHAPE 'a' stays on the CPU: {reason}.",
        f"GATHER 'b' stays on the CPU: {NO_KERNEL}. {LIST}",
        f"RESHAPE 'f' stays on the CPU: {reason}.",
    ]


def test_an_operator_that_moves_nothing_is_a_view_too() -> None:
    x = activation("x", (1, 4, 4, 8))
    sizes = [constant("begin", [0, 0, 0, 0]), constant("size", [1, 4, 4, 8])]
    graph = graph_of([x], [Node("slice", ("x", "begin", "size"), ("y",))], [*sizes, activation("y", (1, 4, 4, 8))])
    found = partition(graph)
    assert found.partitions == ()
    assert [item.operator for item in found.on_cpu] == ["SLICE"]


def test_an_operator_made_of_views_alone_is_one_too() -> None:
    sizes = [constant("block", [1, 1]), constant("none", [[0, 0], [0, 0]])]
    node = Node("space_to_batch_nd", ("x", "block", "none"), ("y",))
    found = partition(graph_of([activation("x", (1, 4, 4, 8))], [node], [*sizes, activation("y", (1, 4, 4, 8))]))
    assert found.partitions == ()
    shape = Tensor("y", (4,), DType.INT32)
    constants = graph_of([activation("x", (1, 4, 4, 8))], [Node("shape", ("x",), ("y",))], [shape])
    assert [item.operator for item in partition(constants).on_cpu] == ["SHAPE"]


def test_reasons_of_the_operator_table_are_passed_on() -> None:
    x = Tensor("x", (1, 4), activation("t", (1,)).dtype, None)
    graph = graph_of([x], [Node("relu", ("x",), ("y",))], [activation("y", (1, 4))])
    assert [str(item) for item in partition(graph).on_cpu] == [
        "RELU 'y' stays on the CPU: input 'x' has no quantization parameters."
    ]


def test_extracted_borders_keep_the_whole_graphs_order() -> None:
    graph = net(on_npu("a", "y", "x"), on_npu("b", "a"), on_cpu("c", "a"), inputs=("x", "unused", "y"),
                outputs=("c", "b"))  # fmt: skip
    part = extract(graph, (0, 1))
    assert (part.inputs, part.outputs) == (("x", "y"), ("b", "a"))
    part.verify()


@st.composite
def random_nets(draw: st.DrawFn) -> Graph:
    names = ["x"]
    nodes = []
    for index in range(draw(st.integers(1, 14))):
        first, second = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        kind = draw(st.sampled_from([on_npu, on_npu, on_cpu]))
        nodes.append(kind(f"t{index}", first, second))
        names.append(f"t{index}")
    return net(*nodes, outputs=(names[-1],))


def most_alternations(graph: Graph, rejected: set[str]) -> int:
    """Accepted nodes on one path with a rejected one between each two: no solution has fewer partitions."""
    made_by = {node.name: node for node in graph.nodes}
    chain: dict[str, tuple[int, bool]] = {}

    def best(name: str) -> tuple[int, bool]:
        """Partitions on the way to this value, and whether the last of them is still open here."""
        if name not in made_by:
            return (0, False)
        if name not in chain:
            behind = [best(str(source)) for source in made_by[name].inputs]
            if name in rejected:
                chain[name] = (max(count for count, _ in behind), False)
            else:
                chain[name] = (max(1, *(count if is_open else count + 1 for count, is_open in behind)), True)
        return chain[name]

    return max((best(node.name)[0] for node in graph.nodes), default=0)


@given(random_nets())
@settings(max_examples=200, deadline=None)
def test_partitions_are_the_fewest_there_can_be(graph: Graph) -> None:
    found = partition(graph)
    found.verify(graph)
    rejected = {item.name for item in found.on_cpu}
    assert rejected == {node.name for node in graph.nodes if node.op == "GATHER"}
    assert len(found.partitions) == most_alternations(graph, rejected)
    assert [step for step in found.steps if isinstance(step, OnNpu)] == [OnNpu(i) for i in range(len(found.partitions))]
    for part in found.partitions:
        part.graph.verify()
        assert part.nodes == tuple(sorted(part.nodes))


def test_verify_refuses_an_order_that_runs_a_node_too_early() -> None:
    graph = net(on_npu("a", "x"), on_cpu("b", "a"))
    found = partition(graph)
    with pytest.raises(AssertionError, match=r"OnHost\(node=1\) runs before \['a'\]"):
        Partitioning(found.partitions, found.on_cpu, found.steps[::-1]).verify(graph)
