# SPDX-License-Identifier: BSD-3-Clause
"""Annotates an ATen graph for torchao's PT2E quantization with what the NPU computes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationSpecBase

from openneutron.pytorch.aten_passes.neutron_aten_pass_manager import NeutronAtenPassManager
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.quantizer.rules import ACTIVATIONS, RULES, AnnotationRule, Result
from openneutron.pytorch.quantizer.specs import activation_spec, bias_spec, fixed_spec, weight_spec


class NeutronQuantizer(Quantizer):
    """int8 static quantization: activations affine per tensor; weights symmetric, per channel in convolutions.

    Linear layers have one weight scale, biases are int32. Tensors that are not float stay as they are. Operators without
    a row in ``rules.RULES`` stay float.
    """

    def __init__(self, neutron_target_spec: NeutronTargetSpec, is_qat: bool = False) -> None:
        super().__init__()
        self.neutron_target_spec = neutron_target_spec
        self.is_qat = is_qat

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        manager = NeutronAtenPassManager(self.neutron_target_spec, is_qat=self.is_qat)
        return manager(model).graph_module

    def annotate(self, model: GraphModule) -> GraphModule:
        for node in model.graph.nodes:
            if node.op != "call_function" or Q_ANNOTATION_KEY in node.meta:
                continue
            rule = RULES.get(str(node.target))
            if rule is not None and _is_float(node):
                self._annotate_node(node, rule)
        return model

    def validate(self, model: GraphModule) -> None:
        """Nothing to check: every row of the rule table can be computed, in float where the NPU can't."""

    def _annotate_node(self, node: Node, rule: AnnotationRule) -> None:
        if node.kwargs.get("alpha", 1) != 1:
            return
        data = list(_data_nodes(node, rule))
        if not data or not all(_is_float(item) for item in data):
            return
        inputs: dict[Node, QuantizationSpecBase | None] = {item: self._input_spec(item) for item in data}
        if rule.weight is not None and not self._add_constants(node, rule, data[0], inputs):
            return
        first = data[0]
        if _is_shared(node, rule):
            for item in data[1:]:
                if item is not first:
                    inputs[item] = SharedQuantizationSpec((first, node))
        last = self._tail(node) if rule.fuses else node
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
            inputs, self._output_spec(node, rule, first), _annotated=True
        )
        if last is not node:
            node.meta[Q_ANNOTATION_KEY].output_qspec = None
            for inner in _between(node, last):
                inner.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, None, _annotated=True)
            last.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, activation_spec(self.is_qat), _annotated=True)

    def _output_spec(self, node: Node, rule: AnnotationRule, first: Node) -> QuantizationSpecBase:
        if rule.result is Result.FIXED:
            assert rule.fixed is not None
            return fixed_spec(*rule.fixed)
        if _is_shared(node, rule):
            return SharedQuantizationSpec((first, node))
        return activation_spec(self.is_qat)

    def _input_spec(self, source: Node) -> QuantizationSpecBase:
        """The producer's scale where it is fixed; otherwise one from calibration, which torchao shares with the producer."""
        if isinstance(_root_spec(source), FixedQParamsQuantizationSpec):
            return SharedQuantizationSpec(source)
        return activation_spec(self.is_qat)

    def _add_constants(
        self, node: Node, rule: AnnotationRule, first: Node, inputs: dict[Node, QuantizationSpecBase | None]
    ) -> bool:
        """Adds weight and bias to ``inputs``; False if the weight is not a constant."""
        weight = _argument(node, rule.weight)
        if not isinstance(weight, Node) or weight.op != "get_attr":
            return False
        inputs[weight] = weight_spec(rule.weight_axis, self.is_qat)
        bias = _argument(node, rule.bias)
        if isinstance(bias, Node) and bias.op == "get_attr":
            inputs[bias] = bias_spec(first, weight, node, per_channel=rule.weight_axis is not None)
        return True

    def _tail(self, node: Node) -> Node:
        """The last node that runs inside ``node``: an activation, and in training the batch norm before it."""
        last = node
        if self.is_qat and (norm := _only_user(last)) is not None and str(norm.target) == "aten.batch_norm.default":
            last = norm
        user = _only_user(last)
        return user if user is not None and str(user.target) in ACTIVATIONS else last


def _is_shared(node: Node, rule: AnnotationRule) -> bool:
    return rule.result is Result.SHARED and not (rule.own_if is not None and rule.own_if(node))


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        return True
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _argument(node: Node, place: int | None) -> object:
    """The argument at this place of the schema, by place or by name; None where it is not given."""
    if place is None:
        return None
    if place < len(node.args):
        return node.args[place]
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.kwargs.get(node.target._schema.arguments[place].name)


def _data_nodes(node: Node, rule: AnnotationRule) -> Iterator[Node]:
    for place in rule.data:
        argument = _argument(node, place)
        items = argument if isinstance(argument, (list, tuple)) else (argument,)
        yield from (item for item in items if isinstance(item, Node))


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _between(first: Node, last: Node) -> Iterator[Node]:
    """The nodes of a chain, ends left out."""
    here = _only_user(first)
    while here is not None and here is not last:
        yield here
        here = _only_user(here)


def _root_spec(node: Node) -> QuantizationSpecBase | None:
    """The spec of a node's result, following shared ones to where they begin."""
    place: Node | tuple[Node, Node] = node
    while True:
        owner = place if isinstance(place, Node) else place[1]
        annotation = owner.meta.get(Q_ANNOTATION_KEY)
        if annotation is None:
            return None
        spec = annotation.output_qspec if isinstance(place, Node) else annotation.input_qspec_map.get(place[0])
        if not isinstance(spec, SharedQuantizationSpec):
            return spec
        place = spec.edge_or_node
