# SPDX-License-Identifier: BSD-3-Clause
"""Quantize a model as its options specify: with other observers, equalized channels, rounded weights or corrected
biases."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

from torch.fx import Graph, GraphModule, Node
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from openneutron.device.timings import step
from openneutron.errors import InvalidOptionError
from openneutron.options import FLOAT32, OPEN, QuantizationOptions, changed
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.quantizer.calibrate import calibrate_or_restore
from openneutron.pytorch.quantizer.improvements import correct_bias, equalize, layer_by_layer, round_weights
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.observers import OBSERVER, HistogramRangeObserver
from openneutron.pytorch.quantizer.passes.batch_norm import fold_batch_norms
from openneutron.pytorch.quantizer.settings import USUAL, QuantizationConfig, Usual
from openneutron.pytorch.source.exporting import FirstSamples, ModelInputs

MEASURES = ("observer", "layer_observers", "equalize", "smooth", "adaptive_rounding", "correct_biases")
"""The options that change how a model is calibrated, or its weights."""


def measures_in(options: QuantizationOptions) -> list[str]:
    """Return the names of the options in ``MEASURES`` that are not at their defaults.

    Raises InvalidOptionError if there is such an option together with ``train_fn``.
    """
    found = [name for name in MEASURES if name in changed(options)]
    if found and options.train_fn is not None:
        raise InvalidOptionError(
            f"{found[0]}: it is for calibration; a model that is trained adapts by itself. Leave it out."
        )
    return found


def quantizer_for(
    options: QuantizationOptions, target: NeutronTargetSpec, is_qat: bool | None = None, converter: str = OPEN
) -> NeutronQuantizer:
    """Return the quantizer with the activation types, observers and float layers of the options. If ``is_qat`` is
    None, the quantizer is for training where the options have a ``train_fn``."""
    is_qat = options.train_fn is not None if is_qat is None else is_qat
    quantizer = NeutronQuantizer(target, is_qat, OBSERVER[options.observer], options.activations, converter)
    quantizer.splits_results = options.io_dtype == FLOAT32
    for name, activations in options.layer_activations:
        quantizer.set_module_name(name, QuantizationConfig(activations=activations))
    for name, observer in options.layer_observers:
        chosen = Usual(OBSERVER[observer] or HistogramRangeObserver)
        quantizer.set_module_name(name, QuantizationConfig(USUAL, chosen))
    return quantizer.keep_float(*options.keep_float) if options.keep_float else quantizer


def quantized_with(
    module: GraphModule,
    quantizer: NeutronQuantizer,
    calibration: Iterable[ModelInputs],
    options: QuantizationOptions,
    after_sample: Callable[[int], None] | None = None,
) -> tuple[GraphModule, GraphModule]:
    """Return the float module and the quantized module, whose operators have the same names. ``module`` is changed
    in place; its tensors are not.

    Raises the errors of ``calibrate``. All samples are in memory at once if an option (``equalize``, ``smooth``,
    ``adaptive_rounding`` or ``correct_biases``) needs them twice.
    """
    channels = options.equalize or options.smooth is not None
    changes = [round_weights] if options.adaptive_rounding else []
    changes += [correct_bias] if options.correct_biases else []
    first = calibration if isinstance(calibration, FirstSamples) else FirstSamples(calibration)
    calibration = first.all() if channels or changes else first
    with step("Preparing"):
        quantizer.begin(module)
        quantizer.samples = first
        fold_batch_norms(module)
    if channels:
        with step("Equalizing channels"):
            equalize(module, calibration, options.equalize, options.smooth)
    with step("Preparing"):
        prepared = prepare_pt2e(module, quantizer)
        real = without_observers(prepared)
    calibrate_or_restore(prepared, calibration, after_sample)
    with step("Converting"):
        quantized = convert_pt2e(prepared)
    if changes:
        with step("Correcting layers"):
            layer_by_layer(real, quantized, list(calibration), changes)
    return real, quantized


def copied(module: GraphModule) -> GraphModule:
    """Return a copy of a module: the graph is copied, and the tensors are shared."""
    return GraphModule(module, copy_of(module.graph))


def copy_of(graph: Graph) -> Graph:
    """Return a copy of a graph. The nodes have the same names, and each has a copy of the original ``meta``
    dictionary."""
    made = Graph()
    made._codegen = copy.copy(graph._codegen)
    known: dict[Node, Node] = {}
    for node in graph.nodes:
        known[node] = made.node_copy(node, known.__getitem__)
        known[node].name = node.name
        known[node].meta = dict(node.meta)
    return made


def without_observers(prepared: GraphModule) -> GraphModule:
    """Return a prepared module as a float module: the same graph without observers."""
    graph = copy_of(prepared.graph)
    for node in list(graph.nodes):
        if node.op == "call_module" and hasattr(prepared.get_submodule(str(node.target)), "calculate_qparams"):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(prepared, graph)
