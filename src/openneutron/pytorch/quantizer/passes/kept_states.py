# SPDX-License-Identifier: BSD-3-Clause
"""Quantize states: those that a call takes and returns, and buffers that a model changes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationSpecBase

from openneutron.pytorch.graph.rewriting import results_of
from openneutron.pytorch.operators.annotations import Kept, argument
from openneutron.pytorch.quantizer.specs import Place, fixed_spec, owner_of, root_spec, spec_at


def annotate_results(node: Node, kept: Kept) -> None:
    """Give the results of a call that keeps a state their quantization. The first result that is read has the call's quantization, the
    other results share it, and the state is int16."""
    annotation = node.meta[Q_ANNOTATION_KEY]
    output, annotation.output_qspec = annotation.output_qspec, None
    wide = fixed_spec(kept.scale(node), 0, torch.int16) if output is not None else None
    state, first = argument(node, kept.argument), kept.beside(node)
    if isinstance(state, Node):
        annotation.input_qspec_map[state] = wide
    shared = output if output is None or isinstance(output, SharedQuantizationSpec) else SharedQuantizationSpec(first)
    for place, results in results_of(node).items():
        for result in results:
            spec = wide if place == kept.result else output if result is first else shared
            result.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, spec, _annotated=True)


def share_states(model: GraphModule) -> None:
    """Give the old and the new value of each buffer that the model changes one quantization, so that it can be kept as int8.

    Where operators fix two different quantizations, both values keep their own.
    """
    order = {node: place for place, node in enumerate(model.graph.nodes)}
    for write in model.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        state, source = write.args[:2]
        if not isinstance(state, Node) or state.op != "get_attr" or not isinstance(source, Node):
            continue
        value: Place = source if spec_at((source, write)) is None else (source, write)
        # In the order of the graph: torchao recurses without end where a read shares a spec that shares that of another read.
        users = sorted(state.users, key=order.__getitem__)
        reads: list[tuple[Node, Node]] = [(state, user) for user in users if spec_at((state, user)) is not None]
        if reads and root_spec(source)[1] is None and Q_ANNOTATION_KEY not in write.meta:
            write.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                {value: SharedQuantizationSpec(reads[0])}, _annotated=True
            )
        for read in reads:
            _join(read, value, order)


def _join(one: Place, other: Place, order: Mapping[Node, int]) -> None:
    """Give two places one spec. A shared spec refers to an earlier place of the graph."""
    (first, spec), (second, other_spec) = sorted(
        (root_spec(one), root_spec(other)), key=lambda each: order[owner_of(each[0])]
    )
    if first == second or spec is None or other_spec is None:
        return
    if not isinstance(other_spec, FixedQParamsQuantizationSpec):
        _set_spec(second, SharedQuantizationSpec(first))
    elif not isinstance(spec, FixedQParamsQuantizationSpec):
        _set_spec(first, other_spec)


def _set_spec(place: Place, spec: QuantizationSpecBase) -> None:
    annotation = owner_of(place).meta[Q_ANNOTATION_KEY]
    if isinstance(place, Node):
        annotation.output_qspec = spec
    else:
        annotation.input_qspec_map[place[0]] = spec
