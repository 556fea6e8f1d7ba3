# SPDX-License-Identifier: BSD-3-Clause
"""Annotates an ATen graph for torchao's PT2E quantization with what the NPU computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Set
from typing import Any, Self

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationSpecBase

from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.pointwise import Region, find_regions
from openneutron.pytorch.graph.rewriting import constant_of, is_state
from openneutron.pytorch.operators.annotations import (
    FILL,
    LOG_SOFTMAX,
    SOFTMAX,
    AnnotationRule,
    Result,
    annotation_rules,
)
from openneutron.pytorch.operators.rules.results import ACTIVATIONS, is_fused_clamp
from openneutron.pytorch.quantizer import settings
from openneutron.pytorch.quantizer.observers import fixed_parameters
from openneutron.pytorch.quantizer.passes.batch_norm import BATCH_NORM, normalized
from openneutron.pytorch.quantizer.settings import Choice, Overrides, QuantizationConfig, Usual
from openneutron.pytorch.quantizer.specs import (
    ChosenSpec,
    act_qspec,
    activation_spec,
    bias_spec,
    filled_spec,
    fixed_spec,
    has_own_scale,
    is_per_channel,
    is_probability_spec,
    log_probability_spec,
    probability_spec,
    product_specs,
    root_spec,
    row_dimension,
    row_spec,
    share_states,
    weight_spec,
    wgt_fc_qspec,
    wgt_qspec,
)

__all__ = ["NeutronQuantizer", "act_qspec", "wgt_fc_qspec", "wgt_qspec"]


class NeutronQuantizer(Quantizer):
    """A quantizer of torchao for static int8: activations affine per tensor, weights symmetric per output channel.

    Biases are int32. Tensors that are not float stay as they are. Pointwise functions are quantized at their inputs and outputs
    alone; other operators without an annotation rule stay float. The ``set_`` methods change the quantization of single modules
    and operators, and return the quantizer. Names may have wildcards (``features.*``); a name that the model does not have raises
    InvalidOptionError when the model is quantized. The name of a module has priority over its type, the type over an operator, and
    a later call over an earlier one.

    Args:
        neutron_target_spec: The target; None means the default target.
        is_qat: True inserts fake quantization for training.
        observer: The class of observers of activations in calibration; None means HistogramRangeObserver.

    >>> NeutronQuantizer().keep_float("classifier.*").neutron_target_spec.get_name()
    'imxrt700'
    """

    def __init__(
        self, neutron_target_spec: NeutronTargetSpec | None = None, is_qat: bool = False, observer: Any = None
    ) -> None:
        super().__init__()
        self.neutron_target_spec = neutron_target_spec or NeutronTargetSpec()
        self.is_qat, self.observer = is_qat, observer
        self._overrides, self._names = Overrides(), settings.nothing()

    def set_global(self, config: QuantizationConfig | None) -> Self:
        """Set how operators are quantized for which no other setting exists; None keeps them float."""
        self._overrides = dataclasses.replace(self._overrides, rest=config)
        return self

    def set_module_name(self, name: str, config: QuantizationConfig | None) -> Self:
        """Set how everything in a module (``features.3``) is quantized; None keeps it float."""
        return self._having(settings.module_name(name, config, "set_module_name"))

    def set_module_type(self, kind: type | str, config: QuantizationConfig | None) -> Self:
        """Set how everything in modules of a class is quantized; None keeps it float."""
        return self._having(settings.module_type(kind, config, "set_module_type"))

    def set_operator(self, target: object, config: QuantizationConfig | None) -> Self:
        """Set how an operator (an overload, an operator with all its overloads, or the name of either) is quantized. None keeps
        it float; operators that would be taken apart stay whole then."""
        return self._having(settings.operator(target, config, "set_operator"))

    set_operator_type = set_operator

    def keep_float(self, *items: object) -> Self:
        """Keep modules (names, classes) and operators (``aten.softmax.int``) float."""
        for item in items:
            self._having(settings.any_of(item, None, "keep_float"))
        return self

    def _having(self, override: settings.Override) -> Self:
        self._overrides = self._overrides.having(override)
        return self

    def begin(self, model: GraphModule) -> None:
        """Note the model's names and what was said of its operators, before passes fold or rewrite them."""
        self._names |= settings.names_in(model)
        self._overrides.mark(model)

    def keeps_float(self, node: Node) -> bool:
        """Return whether the user wants the node not quantized."""
        return self._overrides.keeps_float(node)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Return the model after the passes of the quantizer, in place; torchao calls this method before ``annotate``."""
        # The passes load the files of all decompositions and lowering rules.
        from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import NeutronAtenPassManager

        self.begin(model)
        keep = self._overrides.keeps_float if self._overrides else None
        return NeutronAtenPassManager(self.neutron_target_spec, is_qat=self.is_qat, keep=keep)(model).graph_module

    def annotate(self, model: GraphModule) -> GraphModule:
        """Return the model with the quantization of each node noted, in place; torchao calls this method."""
        self.begin(model)
        self._overrides.check(self._names)
        constants = constant_nodes(model)
        for region in self._functions(model, constants):
            self._annotate_function(region)
        for node in model.graph.nodes:
            if node.op != "call_function" or Q_ANNOTATION_KEY in node.meta:
                continue
            rule = annotation_rules().get(str(node.target))
            config = self._overrides.of(node)
            if rule is None or config is None or node in constants:
                continue
            if _is_float(node) or rule.result is Result.NONE:
                self._annotate_node(node, rule, config, constants)
        share_states(model)
        settings.mark_left_float(model, constants)
        settings.unmark(model)
        self._names = settings.nothing()
        return model

    def validate(self, model: GraphModule) -> None:
        """Nothing to check: every row of the rule table can be computed, in float where the NPU can't."""

    def _functions(self, model: GraphModule, constants: Set[Node]) -> list[Region]:
        """Return the pointwise functions that become tables: all but single calls with a row of their own. Calls that are
        quantized in different ways are no function together."""
        ways: list[tuple[QuantizationConfig, list[Node]]] = []
        for node in model.graph.nodes:
            free = Q_ANNOTATION_KEY not in node.meta and node not in constants
            config = self._overrides.of(node) if free else None
            if config is not None:
                alike = next((nodes for known, nodes in ways if known == config), None)
                if alike is None:
                    ways.append((config, [node]))
                else:
                    alike.append(node)

        def is_number(node: Node) -> bool:
            value = constant_of(model, node)
            return value is not None and value.numel() == 1

        found = [find_regions(nodes, is_number, self._host) for _, nodes in ways]
        return [region for regions in found for region in regions if len(region.nodes) > 1 or not _has_row(region.end)]

    def _annotate_function(self, region: Region) -> None:
        config = self._overrides.of(region.end)
        assert config is not None
        source, spec = self._input_spec(region.root, config), self._activation(config.output_activation, region.end)
        for node in region.nodes:
            inputs = {region.root: source} if region.root in node.all_input_nodes else {}
            result = spec if node is region.end else None
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(inputs, result, _annotated=True)

    def _host(self, node: Node) -> Node | None:
        """Return the operator that an activation behind it runs inside of."""
        if str(node.target) not in ACTIVATIONS or not isinstance(node.args[0], Node):
            return None
        host = node.args[0]
        if self.is_qat and host.target in (BATCH_NORM, normalized) and isinstance(host.args[0], Node):
            host = host.args[0]
        rule = annotation_rules().get(str(host.target))
        return host if rule is not None and rule.fuses and self._tail(host) is node else None

    def _annotate_node(
        self, node: Node, rule: AnnotationRule, config: QuantizationConfig, constants: Set[Node]
    ) -> None:
        if node.kwargs.get("alpha", 1) != 1:
            return
        data = list(_data_nodes(node, rule))
        if not rule.data:
            self._annotate_truths(node, rule, config)
        if not data or not all(_is_float(item) for item in data):
            return
        inputs: dict[Node, QuantizationSpecBase | None] = {item: self._input_spec(item, config) for item in data}
        if rule.weight is not None and not self._add_constants(node, rule, data[0], inputs, config, constants):
            if rule.otherwise is not None:
                self._annotate_node(node, rule.otherwise, config, constants)
            return
        if rule.products is not None:
            chosen = None if isinstance(config.weight, Usual) else (config.weight,)
            inputs |= product_specs(
                node, rule.products(node), data[0], inputs[data[0]] is not None, chosen, self.is_qat
            )
        first = _leader(data)
        if _is_shared(node, rule) and first is not None and inputs[first] is not None:
            for item in data:
                if item is not first and _shares(item, first):
                    inputs[item] = SharedQuantizationSpec((first, node))
        last = self._tail(node) if rule.fuses else node
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
            inputs, self._output_spec(node, rule, first, inputs, config), _annotated=True
        )
        if last is not node:
            node.meta[Q_ANNOTATION_KEY].output_qspec = None
            inner = _only_user(node)
            while inner is not None and inner is not last:
                inner.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, None, _annotated=True)
                inner = _only_user(inner)
            config_of_last = self._overrides.of(last)
            assert config_of_last is not None
            spec = self._activation(config_of_last.output_activation, last)
            last.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, spec, _annotated=True)

    def _annotate_truths(self, node: Node, rule: AnnotationRule, config: QuantizationConfig) -> None:
        (source,) = node.all_input_nodes
        if source.meta["val"].dtype == torch.bool and config.output_activation is not None:
            assert rule.fixed is not None
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, fixed_spec(*rule.fixed), _annotated=True)

    def _output_spec(
        self,
        node: Node,
        rule: AnnotationRule,
        first: Node | None,
        inputs: Mapping[Node, QuantizationSpecBase | None],
        config: QuantizationConfig,
    ) -> QuantizationSpecBase | None:
        if config.output_activation is None or rule.result is Result.NONE:
            return None
        if rule.result is Result.FIXED:
            assert rule.fixed is not None
            return fixed_spec(*rule.fixed)
        if _is_shared(node, rule) and first is not None and inputs[first] is not None:
            return SharedQuantizationSpec((first, node))
        state = _argument(node, rule.state)
        if isinstance(state, Node) and inputs.get(state) is not None:
            return SharedQuantizationSpec((state, node))
        return self._activation(config.output_activation, node)

    def _activation(self, choice: Choice, node: Node) -> QuantizationSpecBase | None:
        """Return the spec of a tensor whose scale comes from calibration: the user's choice, or the one that suits its
        readers."""
        if not isinstance(choice, Usual):
            return choice
        if str(node.target) == FILL:
            return filled_spec(row_dimension(node), self.is_qat)
        if str(node.target) in SOFTMAX:
            return probability_spec(self.is_qat) if has_own_scale(node) else fixed_spec(*fixed_parameters("softmax"))
        if str(node.target) in LOG_SOFTMAX:
            return log_probability_spec(self.is_qat)
        dim = None if self.is_qat else row_dimension(node)
        return activation_spec(self.is_qat, choice.observer or self.observer) if dim is None else row_spec(dim)

    def _input_spec(self, source: Node, config: QuantizationConfig) -> QuantizationSpecBase | None:
        """Return the producer's scale where its operator fixes it; otherwise one from calibration, which torchao shares
        with the producer."""
        choice = config.input_activation
        if isinstance(choice, Usual) and (_decided(source) is not None or isinstance(root_spec(source)[1], ChosenSpec)):
            return SharedQuantizationSpec(source)
        return self._activation(choice, source)

    def _add_constants(
        self,
        node: Node,
        rule: AnnotationRule,
        first: Node,
        inputs: dict[Node, QuantizationSpecBase | None],
        config: QuantizationConfig,
        constants: Set[Node],
    ) -> bool:
        """Add weight and bias to ``inputs``; False if the weight is not constant (in training, made of constants)."""
        weight = _argument(node, rule.weight)
        if not isinstance(weight, Node) or weight not in constants:
            return False
        axis = rule.weight_axis(node) if callable(rule.weight_axis) else rule.weight_axis
        spec = weight_spec(axis, self.is_qat) if isinstance(config.weight, Usual) else config.weight
        inputs[weight] = spec
        bias = _argument(node, rule.bias)
        if isinstance(bias, Node) and bias.op == "get_attr" and spec is not None and inputs[first] is not None:
            per_channel = is_per_channel(spec)
            if per_channel and axis is not None and spec.ch_axis != axis:
                return True  # no scale for each output channel; lowering says so
            output_scales = rule.bias_scales(node) if per_channel and rule.bias_scales is not None else None
            inputs[bias] = bias_spec(first, weight, node, per_channel, output_scales)
        return True

    def _tail(self, node: Node) -> Node:
        """Return the last node that runs inside ``node``: an activation, and in training the batch norm before it."""
        last = node
        if self.is_qat and (norm := _only_user(last)) is not None and norm.target in (BATCH_NORM, normalized):
            if norm.target is BATCH_NORM and self._overrides.keeps_float(norm):
                return last
            last = norm
        user = _only_user(last)
        if user is None or not is_fused_clamp(user) or self._overrides.keeps_float(user):
            return last
        return user


def _has_row(node: Node) -> bool:
    """Return whether a call with one operand has an annotation rule, and with it an operator of LiteRT's."""
    rule = annotation_rules().get(str(node.target))
    return rule is not None and rule.data == (0,) and rule.weight is None


def _is_shared(node: Node, rule: AnnotationRule) -> bool:
    return rule.result is Result.SHARED and not (rule.own_if is not None and rule.own_if(node))


def _leader(data: list[Node]) -> Node | None:
    """Return the operand whose scale all others with a shared scale take: the first whose scale its operator does not
    fix.

    So no operand is forced into the range of a sigmoid. Where all are fixed alike, it is one of these; where they are
    fixed differently, None.
    """
    free = next((item for item in data if _decided(item) is None), None)
    if free is not None:
        return free
    return data[0] if all(_decided(item) == _decided(data[0]) for item in data) else None


def _shares(item: Node, leader: Node) -> bool:
    """Return whether an operand takes its leader's scale. An operand with a fixed scale is requantized, except a
    probability among probabilities."""
    decided = _decided(item)
    return decided is None or (is_probability_spec(decided) and decided is _decided(leader))


def _decided(node: Node) -> QuantizationSpecBase | None:
    """Return the quantization of a node's result where its operator fixes it: a constant one, or that of
    probabilities."""
    spec = root_spec(node)[1]
    return spec if isinstance(spec, FixedQParamsQuantizationSpec) or is_probability_spec(spec) else None


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        return True
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def constant_nodes(model: GraphModule) -> Set[Node]:
    """Return the constants of a graph and what is made of them alone."""
    found: set[Node] = set()
    for node in model.graph.nodes:
        sources = node.all_input_nodes
        if (node.op == "get_attr" and not is_state(node)) or (
            node.op == "call_function" and sources and found.issuperset(sources)
        ):
            found.add(node)
    return found


def _argument(node: Node, place: int | None) -> object:
    """Return the argument at this place of the schema, by place or by name; None where it is not given."""
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
