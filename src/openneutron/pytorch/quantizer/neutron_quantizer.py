# SPDX-License-Identifier: BSD-3-Clause
"""Annotate an ATen graph for torchao's PT2E quantization with the data types that the NPU computes on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Self

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, Quantizer, SharedQuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationSpecBase

from openneutron.errors import InvalidModelError
from openneutron.options import ACTIVATIONS as TYPES
from openneutron.options import CONVERTERS, EIQ, INT8, INT16, OPEN
from openneutron.options.flags import check_choice
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import (
    JOINS_OUTPUT,
    WHOLE_NUMBERS,
    Region,
    find_regions,
    is_vmapped,
    jumps,
    source_line,
)
from openneutron.pytorch.graph.rewriting import constant_nodes, constant_of, held_by, only_user
from openneutron.pytorch.operators.annotations import (
    BYTES_AND_WORDS,
    FILL,
    LOG_SOFTMAX,
    SOFTMAX,
    AnnotationRule,
    Result,
    annotation_rules,
    argument,
    is_int8_alone,
)
from openneutron.pytorch.operators.rules.context import ACTIVATIONS, is_fused_clamp
from openneutron.pytorch.quantizer import specs
from openneutron.pytorch.quantizer.heads import split_heads, split_layers
from openneutron.pytorch.quantizer.observers import fixed_parameters
from openneutron.pytorch.quantizer.passes import batch_norm  # noqa: F401  (a user's prepare_pt2e)
from openneutron.pytorch.quantizer.passes.batch_norm import BATCH_NORM, normalized
from openneutron.pytorch.quantizer.precision import (
    CARRYING,
    NOTHING_WIDE,
    READERS,
    WIDENING,
    annotate_results,
    find_carried_states,
    find_wide_powers,
    leave_positions_float,
    share_states,
)
from openneutron.pytorch.quantizer.specs import (
    REACHES,
    Choice,
    ChosenSpec,
    Overrides,
    QuantizationConfig,
    Usual,
    act_qspec,
    activation_spec,
    bias_spec,
    decided,
    filled_spec,
    fixed_spec,
    has_own_scale,
    is_float,
    is_mask,
    is_per_channel,
    leader,
    log_probability_spec,
    mask_spec,
    powers_spec,
    probability_spec,
    product_specs,
    reach_of,
    reached_spec,
    root_spec,
    row_dimension,
    row_spec,
    saturating_spec,
    shares,
    type_of,
    weight_spec,
    wgt_fc_qspec,
    wgt_qspec,
    whole_spec,
    wide_fixed_spec,
)
from openneutron.pytorch.source.exporting import FirstSamples

__all__ = ["NeutronQuantizer", "act_qspec", "wgt_fc_qspec", "wgt_qspec"]


class NeutronQuantizer(Quantizer):
    """A quantizer of torchao for static int8 quantization. Activations are affine per tensor, and weights are
    symmetric per output channel.

    Biases are int32. Activations may be symmetric int16 instead, in the whole model or in parts of it. The biases of
    layers with int16 activations stay float until lowering stores them as int64. Tensors that are not float stay as
    they are. A chain of pointwise functions is quantized only at its input and output, because it becomes one lookup
    table. Other operators without an annotation rule stay float. The ``set_`` methods change the quantization of
    single modules and operators, and return the quantizer. Names may have wildcards (``features.*``); a name that the
    model does not have raises InvalidOptionError when the model is quantized. The name of a module has priority over
    its type, the type over an operator, and a later call over an earlier one.

    Args:
        neutron_target_spec: The target; None means the default target.
        is_qat: True inserts fake quantization for training.
        observer: The class of observers of activations, or in training of fake quantization. None means
            HistogramRangeObserver for int8, and twice the range of all values for int16. In training, None means a
            moving average of the range.
        activations: The type of activations where no other setting exists: ``int8`` or ``int16``.
        converter: The converter that will compile the partitions. For ``eiq``, NXP's converter, normalizations are
            decomposed into operators of LiteRT.

    Attributes:
        samples: Calibration samples, which show the parts of a result that have very different ranges. These parts
            get scales of their own. If it is None, only functions of a fixed range, such as sigmoid, count as
            different from other parts.
        splits_results: False gives each result of the model one scale.

    Raises InvalidOptionError for an unknown type of activations or an unknown converter.

    >>> NeutronQuantizer().keep_float("classifier.*").neutron_target_spec.get_name()
    'imxrt700'
    """

    def __init__(
        self,
        neutron_target_spec: NeutronTargetSpec | None = None,
        is_qat: bool = False,
        observer: Any = None,
        activations: str = INT8,
        converter: str = OPEN,
    ) -> None:
        super().__init__()
        check_choice("activations", activations, TYPES)
        check_choice("converter", converter, CONVERTERS)
        self.neutron_target_spec = neutron_target_spec or NeutronTargetSpec()
        self.is_qat, self.observer, self.activations, self.converter = is_qat, observer, activations, converter
        self._overrides, self._names = Overrides(), specs.NO_NAMES
        self.samples: FirstSamples | None = None
        self._positions: Set[Node] = frozenset()
        self._joins: Set[Node] = frozenset()
        self._wide, self._saturates = NOTHING_WIDE, False
        self.depends_on_types = False
        """Whether the NPU's types of activations have decided how a node is quantized."""
        self.splits_results = True

    def set_global(self, config: QuantizationConfig | None) -> Self:
        """Set how operators without another setting are quantized; None keeps them float."""
        self._overrides = dataclasses.replace(self._overrides, rest=config)
        return self

    def set_module_name(self, name: str, config: QuantizationConfig | None) -> Self:
        """Set how everything in a module (``features.3``) is quantized; None keeps it float."""
        return self._having(specs.module_name(name, config, "set_module_name"))

    def set_module_type(self, kind: type | str, config: QuantizationConfig | None) -> Self:
        """Set how everything in modules of a class is quantized; None keeps it float."""
        return self._having(specs.module_type(kind, config, "set_module_type"))

    def set_operator(self, target: object, config: QuantizationConfig | None) -> Self:
        """Set how an operator is quantized. ``target``: an overload, an operator with all its overloads, or the name
        of either.

        None keeps the operator float and not decomposed.
        """
        return self._having(specs.operator(target, config, "set_operator"))

    set_operator_type = set_operator

    def keep_float(self, *items: object) -> Self:
        """Keep modules (names, classes) and operators (``aten.softmax.int``) float."""
        for item in items:
            self._having(specs.any_of(item, None, "keep_float"))
        return self

    def _having(self, override: specs.Override) -> Self:
        self._overrides = self._overrides.having(override)
        return self

    def begin(self, model: GraphModule) -> None:
        """Record the model's names and the settings of its operators, before passes fold or rewrite them.

        Raises InvalidModelError as ``check_graph`` does.
        """
        check_graph(model)
        if self._overrides:
            self._names |= specs.names_in(model)
            self._overrides.mark(model)

    def keeps_float(self, node: Node) -> bool:
        """Return whether the user asked that the node is not quantized."""
        return self._overrides.keeps_float(node)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Run the quantizer's passes on the model in place, and return it; torchao calls this method before
        ``annotate``.

        Raises InvalidModelError as ``check_graph`` does.
        """
        # The passes load the files of all decompositions and lowering rules.
        from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import (
            NeutronAtenPassManager,
            default_passes,
        )

        self.begin(model)
        keep = self._overrides.keeps_float if self._overrides else None
        passes = default_passes(self.is_qat, keep, litert_only=self.converter == EIQ)
        model = NeutronAtenPassManager(self.neutron_target_spec, passes)(model).graph_module
        if model.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
            if self.splits_results:
                split_heads(model, self.samples)
            split_layers(model, self.samples)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Store the quantization of each node in its ``meta``, in place, and return the model; torchao calls this
        method.

        Raises InvalidOptionError for a name in the user's settings that the model does not have, and
        InvalidModelError as ``check_graph`` does.
        """
        self.begin(model)
        if self._overrides:
            self._overrides.check(self._names)
        constants = constant_nodes(model)
        is_read = any(str(node.target) in READERS for node in model.graph.nodes)
        self._positions = leave_positions_float(model, constants) if is_read else frozenset()
        self._joins = {node for node in model.graph.nodes if JOINS_OUTPUT in node.meta.get("custom", {})}
        # The nodes whose quantization is not decided yet.
        decided = self._joins | constants
        free = [node for node in model.graph.nodes if Q_ANNOTATION_KEY not in node.meta and node not in decided]
        self._wide = NOTHING_WIDE
        called = {node.target for node in free}
        self._saturates = not REACHES.keys().isdisjoint(called)
        if (not called.isdisjoint(WIDENING) or called >= CARRYING) and self._widens():
            usual = [node for node in free if self._is_usual(node)]
            wide = find_wide_powers(model, usual, self._host).having(find_carried_states(model, usual))
            self.depends_on_types |= bool(wide.nodes)
            if self._has_int16():
                self._wide = wide
        for region in self._functions(model, free):
            self._annotate_function(region)
        for node in model.graph.nodes:
            if node.op != "call_function" or Q_ANNOTATION_KEY in node.meta or node in self._joins:
                continue
            rule = annotation_rules().get(str(node.target))
            config = self._config(node)
            if rule is None or config is None or node in constants:
                continue
            if is_float(node) or rule.result is Result.NONE or rule.kept is not None:
                self._annotate_node(node, rule, config, constants)
        if model.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
            share_states(model)
        specs.mark_left_float(model, constants)
        if self._overrides:
            specs.unmark(model)
        self._names = specs.NO_NAMES
        return model

    def validate(self, model: GraphModule) -> None:
        """Accept every model: each row of the rule table can be computed, in float where the NPU can't."""

    def _config(self, node: Node) -> QuantizationConfig | None:
        """Return how a node is quantized, with the type of its activations. Return None if the node stays float."""
        if node in self._positions:
            return None
        config = self._overrides.of(node)
        if config is None or config.activations is not None:
            return config
        activations = INT16 if node in self._wide.nodes else self.activations
        return dataclasses.replace(config, activations=INT8 if is_int8_alone(node) else activations)

    def _is_usual(self, node: Node) -> bool:
        """Return whether a node is quantized and no setting of the user states its activation type."""
        config = self._overrides.of(node)
        return config is not None and config.activations is None and node not in self._positions

    def _widens(self) -> bool:
        """Return whether parts of an int8 model may become int16 on an NPU that computes on it. In training and for
        NXP's converter all parts stay int8."""
        return not self.is_qat and self.converter != EIQ and self.activations == INT8

    def _has_int16(self) -> bool:
        return INT16 in self.neutron_target_spec.neutron_target.npu.data_types.value

    def _type_moved(self, node: Node, data: Iterable[Node], config: QuantizationConfig) -> str | None:
        """Return the activation type of an operator that only moves values.

        By default it is the type of the operands, or that of ``config`` if they differ. If no operand has a type yet,
        it is the type of the readers: int16 if they differ, that of ``config`` if none has one. A common type of all
        readers is also taken if each operand is converted to that type anyway, for another reader.
        """
        known = {kind for item in data if (kind := type_of(item)) is not None}
        wanted = self._types_read(node)
        if not known:
            return INT16 if INT16 in wanted else min(wanted, default=config.activations)
        if len(wanted) == 1 and all(wanted <= self._types_read(item, node) for item in data):
            return wanted.pop()
        return known.pop() if len(known) == 1 else config.activations

    def _types_read(self, node: Node, beside: Node | None = None) -> set[str]:
        """Return the activation types of the nodes that read a node's result. Readers that only move values are
        replaced by their own readers. The reader ``beside`` is left out."""
        found: set[str] = set()
        for user in node.users:
            config, rule = self._config(user), annotation_rules().get(str(user.target))
            if config is None or user is beside:
                continue
            if rule is not None and rule.is_shared(user):
                found |= self._types_read(user)
            else:
                found.add(config.activations or self.activations)
        return found

    def _functions(self, model: GraphModule, free: Sequence[Node]) -> list[Region]:
        """Return the regions of the nodes ``free`` that each become one lookup table. A region is a pointwise
        function of one tensor, of one or more calls.

        All calls of a region have the same quantization config. A single call is left out if it has an annotation
        rule with one operand and no weights (``_has_row``). With int16 activations, functions that are not continuous
        are left out too.
        """
        ways: list[tuple[QuantizationConfig, list[Node]]] = []
        for node in free:
            config = self._config(node)
            if config is not None and (config.activations == INT8 or not jumps(node)):
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
        config = self._config(region.end)
        assert config is not None
        source, spec = self._input_spec(region.root, config), self._output_activation(region.end, config)
        for node in region.nodes:
            inputs = {region.root: source} if region.root in node.all_input_nodes else {}
            result = spec if node is region.end else None
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(inputs, result, _annotated=True)

    def _host(self, node: Node) -> Node | None:
        """Return the layer into which the activation ``node``, such as a ReLU, is fused. Return None if it is no
        activation, or if no layer before it can fuse it."""
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
        data = list(rule.operands(node))
        if not rule.data:
            self._annotate_truths(node, rule, config, constants)
        if not data or not all(is_float(item) for item in data):
            return
        is_shared = rule.is_shared(node) and not self._wide.rescales(node)
        if is_shared:
            config = dataclasses.replace(config, activations=self._type_moved(node, data, config))
        assert config.activations is not None
        inputs: dict[Node, QuantizationSpecBase | None] = {item: self._input_spec(item, config) for item in data}
        narrow = argument(node, rule.narrow)
        if isinstance(narrow, Node) and narrow in inputs and config.activations == INT16:
            inputs[narrow] = self._activation(config.input_activation, narrow, INT8)
        if rule.weight is not None and not self._add_constants(node, rule, data[0], inputs, config, constants):
            if rule.otherwise is not None:
                self._annotate_node(node, rule.otherwise, config, constants)
            return
        if rule.products is not None:
            is_counted = inputs[data[0]] is not None and config.activations == INT8
            spec = weight_spec(None, self.is_qat) if isinstance(config.weight, Usual) else config.weight
            inputs |= product_specs(node, rule.products(node), data[0], spec, is_counted)
        first = leader(data, config.activations)
        if is_shared and first is not None and inputs[first] is not None:
            for item in data:
                if item is not first and shares(item, first, config.activations):
                    inputs[item] = SharedQuantizationSpec((first, node))
        output = self._output_spec(node, rule, first, inputs, config)
        last = self._tail(node) if rule.fuses else node
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(inputs, output, _annotated=True)
        if rule.kept is not None:
            annotate_results(node, rule.kept)
        if last is not node:
            node.meta[Q_ANNOTATION_KEY].output_qspec = None
            inner = only_user(node)
            while inner is not None and inner is not last:
                inner.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, None, _annotated=True)
                inner = only_user(inner)
            config_of_last = self._config(last)
            assert config_of_last is not None
            spec = self._output_activation(last, dataclasses.replace(config_of_last, activations=config.activations))
            last.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, spec, _annotated=True)

    def _annotate_truths(
        self, node: Node, rule: AnnotationRule, config: QuantizationConfig, constants: Set[Node]
    ) -> None:
        (source,) = node.all_input_nodes
        if config.output_activation is None or node.meta["val"].dtype != torch.float32:
            return
        dtype = source.meta["val"].dtype
        if dtype in (torch.int32, torch.int64) and config.activations == INT8 and source not in constants:
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                {}, self._output_activation(node, config), _annotated=True
            )
        fixed = rule.fixed if dtype == torch.bool else BYTES_AND_WORDS.get(dtype)
        self.depends_on_types |= fixed is not None and dtype == torch.int16
        if fixed is not None and (dtype != torch.int16 or self._has_int16()):
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, fixed_spec(*fixed), _annotated=True)

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
            return wide_fixed_spec() if config.activations == INT16 else fixed_spec(*rule.fixed)
        if rule.result is Result.REACHED:
            assert rule.fixed is not None
            if config.activations == INT16:
                return wide_fixed_spec()
            # LiteRT's own operator needs the fixed parameters. Training keeps them too, since its values change.
            return fixed_spec(*rule.fixed) if self.is_qat or self.converter == EIQ else reached_spec(*rule.fixed)
        is_shared = rule.is_shared(node) and not self._wide.rescales(node)
        if is_shared and first is not None and inputs[first] is not None:
            return SharedQuantizationSpec((first, node))
        state = argument(node, rule.state)
        if isinstance(state, Node) and inputs.get(state) is not None:
            return SharedQuantizationSpec((state, node))
        return self._output_activation(node if rule.kept is None else rule.kept.beside(node), config)

    def _output_activation(self, node: Node, config: QuantizationConfig) -> QuantizationSpecBase | None:
        activations = INT8 if node in self._wide.ends else config.activations or self.activations
        return self._activation(config.output_activation, node, activations)

    def _activation(self, choice: Choice, node: Node, activations: str) -> QuantizationSpecBase | None:
        """Return the quantization spec of a node's value: the user's choice, or else the spec that suits the node and
        its readers. None keeps the value float.

        An int8 node that holds only whole numbers always gets the spec with the scale 1 (``whole_spec``).
        """
        bounds = node.meta.get("custom", {}).get(WHOLE_NUMBERS)
        if bounds is not None and activations == INT8:
            return whole_spec(bounds)
        if not isinstance(choice, Usual):
            return choice
        if str(node.target) == FILL:
            return filled_spec(row_dimension(node), self.is_qat, activations)
        if str(node.target) in SOFTMAX and activations == INT16:
            return wide_fixed_spec()
        if str(node.target) in SOFTMAX:
            return probability_spec(self.is_qat) if has_own_scale(node) else fixed_spec(*fixed_parameters("softmax"))
        if str(node.target) in LOG_SOFTMAX and activations == INT8:
            return log_probability_spec(self.is_qat)
        if is_mask(node):
            return mask_spec(self.is_qat, activations)
        if node in self._wide.sums and activations == INT16 and choice.observer is None:
            return powers_spec()
        dim = None if self.is_qat else row_dimension(node)
        if dim is not None:
            return row_spec(dim, activations)
        is_plain = activations == INT8 and choice.observer is None and self.observer is None and not self.is_qat
        if self._saturates and is_plain and (reach := reach_of(node)) is not None:
            return saturating_spec(reach)
        return activation_spec(self.is_qat, choice.observer or self.observer, activations)

    def _input_spec(self, source: Node, config: QuantizationConfig) -> QuantizationSpecBase | None:
        """Return the quantization spec of an operand. If the user stated one in the reader's config, it is that one.

        Otherwise it is the spec of the node that computes the operand, if that node's operator fixes the scale or the
        user chose the node's observer. In all other cases it is a new spec with an observer, which torchao shares
        with that node.
        """
        choice, activations = config.input_activation, config.activations or self.activations
        is_chosen = isinstance(root_spec(source)[1], ChosenSpec) and type_of(source) == activations
        if isinstance(choice, Usual) and (is_chosen or decided(source, activations) is not None):
            return SharedQuantizationSpec(source)
        return self._activation(choice, source, activations)

    def _add_constants(
        self,
        node: Node,
        rule: AnnotationRule,
        first: Node,
        inputs: dict[Node, QuantizationSpecBase | None],
        config: QuantizationConfig,
        constants: Set[Node],
    ) -> bool:
        """Add the specs of the weight and the bias to ``inputs``. Return False if the weight depends on anything but
        constants.

        The bias gets a spec only if it is a stored constant, the activations are int8, and both input and weight are
        quantized. A weight whose scales are along another axis than ``rule.weight_axis`` leaves the bias without a
        spec.
        """
        weight = argument(node, rule.weight)
        if not isinstance(weight, Node) or weight not in constants:
            return False
        axis = rule.weight_axis(node) if callable(rule.weight_axis) else rule.weight_axis
        spec = weight_spec(axis, self.is_qat) if isinstance(config.weight, Usual) else config.weight
        inputs[weight] = spec
        bias = argument(node, rule.bias)
        is_counted = config.activations == INT8 and spec is not None and inputs[first] is not None
        if isinstance(bias, Node) and bias.op == "get_attr" and is_counted:
            assert spec is not None
            per_channel = is_per_channel(spec)
            if per_channel and axis is not None and spec.ch_axis != axis:
                return True  # no scale for each output channel; lowering states this reason
            output_scales = rule.bias_scales(node) if per_channel and rule.bias_scales is not None else None
            inputs[bias] = bias_spec(first, weight, node, per_channel, output_scales)
        return True

    def _tail(self, node: Node) -> Node:
        """Return the last node that is fused into ``node``: the activation after it, or in training the batch
        normalization after it if no activation follows.

        In training, a batch normalization may be between ``node`` and the activation. Return ``node`` itself if no
        node is fused into it.
        """
        last = node
        if self.is_qat and (norm := only_user(last)) is not None and norm.target in (BATCH_NORM, normalized):
            if norm.target is BATCH_NORM and self._overrides.keeps_float(norm):
                return last
            last = norm
        user = only_user(last)
        if user is None or not is_fused_clamp(user) or (self._overrides and self._overrides.keeps_float(user)):
            return last
        return user


def _has_row(node: Node) -> bool:
    """Return whether a node has an annotation rule with one operand and no weights, so that one LiteRT operator computes it."""
    rule = annotation_rules().get(str(node.target))
    return rule is not None and rule.data == (0,) and rule.weight is None


LOOPS = ("while_loop", "scan", "associative_scan")
"""Higher-order operators that ExecuTorch can't lower in a graph with quantized values."""


def check_graph(module: GraphModule) -> None:
    """Raise InvalidModelError if the model has a loop or ``torch.vmap``, a parameter with NaN or infinite values, or
    a buffer with NaN.

    Infinite values in a buffer are allowed, because the buffer may be a mask.
    """
    for node in module.graph.nodes:
        if is_vmapped(node) or (isinstance(node.target, HigherOrderOperator) and node.target.name() in LOOPS):
            _refuse(node)
    for node in module.graph.find_nodes(op="get_attr"):
        held = held_by(module, node)
        if not isinstance(held, torch.Tensor) or not held.is_floating_point() or not held.numel():
            continue
        if held.is_meta or isinstance(held, torch._subclasses.FakeTensor):
            continue
        low, high = (float(end) for end in held.detach().aminmax())
        is_finite = -math.inf < low and high < math.inf
        if is_finite or (not isinstance(held, torch.nn.Parameter) and not math.isnan(low)):
            continue
        kind = "a buffer" if not isinstance(held, torch.nn.Parameter) else "a parameter"
        count = int((~held.isfinite()).sum())
        raise InvalidModelError(
            f"'{node.target}': {kind} of the model with {count} of {held.numel()} values that are NaN or infinite; int8 takes "
            "finite ones. Load weights of a training that converged."
        )


def _refuse(node: Node) -> None:
    line = source_line(node)
    where = f"'{node.name}'" + (f" ({line})" if line else "")
    if is_vmapped(node):
        raise InvalidModelError(
            f"{where}: torch.vmap is still in the exported graph. Take it apart first: "
            "torch.export.export(...).run_decompositions({})."
        )
    assert isinstance(node.target, HigherOrderOperator)
    raise InvalidModelError(
        f"{where}: {node.target.name()} is a loop at run time, which ExecuTorch can't lower beside quantized operators. Write a "
        "Python loop with a fixed number of steps, or end the model before it."
    )
