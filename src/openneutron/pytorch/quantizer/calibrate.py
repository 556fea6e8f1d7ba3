# SPDX-License-Identifier: BSD-3-Clause
"""Quantize a float ATen graph: observe activations on calibration inputs or train with fake quantization, then convert.

``quantized_with`` also applies the accuracy options: other observers, equalized channels, rounded weights, corrected biases.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves
from torchao.quantization.pt2e.fake_quantize import FakeQuantizeBase
from torchao.quantization.pt2e.observer import ObserverBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

from openneutron.device.cache import UNREADABLE, Digest, Store, code, current, packed, unpacked
from openneutron.device.timings import step
from openneutron.errors import InvalidOptionError, OpenNeutronError, warn
from openneutron.options import FLOAT32, OPEN, QuantizationOptions, changed
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.digests import add_node, add_samples, add_tensor, bytes_of, is_known, machine
from openneutron.pytorch.graph.program import arguments_of, quantized_dtype
from openneutron.pytorch.graph.rewriting import NodePass, add_constant, constant_of
from openneutron.pytorch.quantizer.improvements import correct_bias, equalize, layer_by_layer, round_weights
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.observers import OBSERVER, HistogramRangeObserver
from openneutron.pytorch.quantizer.passes.batch_norm import (
    BATCH_NORM,
    CONVOLUTIONS,
    TRAINING_PLACE,
    FoldSimulatedBatchNorm,
    SimulateBatchNorm,
    constant_users,
    fold_batch_norms,
    normalized,
)
from openneutron.pytorch.quantizer.passes.constants import FoldConstants
from openneutron.pytorch.quantizer.specs import INT32_MAX, INT32_MIN, USUAL, QuantizationConfig, Usual
from openneutron.pytorch.source.exporting import FirstSamples, ModelInputs, first_line

MEASURES = ("observer", "layer_observers", "equalize", "smooth", "adaptive_rounding", "correct_biases")
"""The names of the options that improve accuracy: they change the observers of calibration, or the weights."""


def measures_in(options: QuantizationOptions) -> list[str]:
    """Return the names of the accuracy options (``MEASURES``) that are not at their defaults.

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
    """Return the quantizer for the activation types, observers and float layers of the options.

    ``is_qat``: whether the quantizer is for quantization-aware training. None: it is if the options have a ``train_fn``.
    """
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
    """Return the float module and the quantized module. Equal operators have equal names in both.

    The graph of ``module`` is changed in place; its tensors are not changed.

    Raises the errors of ``calibrate``. If one of the options ``equalize``, ``smooth``, ``adaptive_rounding`` and ``correct_biases`` is set,
    all samples are held in memory at once, because they are needed twice.
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
    """Return a module with a copy of the graph and the same tensors."""
    return GraphModule(module, copy_of(module.graph))


def copy_of(graph: Graph) -> Graph:
    """Return a copy of a graph. Its nodes have the same names, and a shallow copy of each ``meta`` dictionary."""
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


KIND = "ranges"

LIBRARIES = ("torch", "torchao", "numpy")

KNOWN_OBSERVERS = ("openneutron", "torchao")
"""The packages whose observers keep all their statistics in buffers."""


def key_of(prepared: GraphModule, samples: Sequence[Any]) -> str | None:
    """Return the hash of all inputs of the calibration: graph, constants, observers and samples. Return None if one of them can't be
    hashed.

    A user's operator, a random operator, control flow and a user's observer can't be hashed: their results may depend on more than the
    graph.
    """
    if not all(_is_known(node, prepared) for node in prepared.graph.nodes):
        return None
    digest = Digest(KIND, code(*LIBRARIES), machine())
    for node in prepared.graph.nodes:
        add_node(digest, node, prepared)
        if node.op == "call_module":
            digest.add(repr(list(_settings(prepared.get_submodule(str(node.target))))).encode())
            for tensor in _buffers(prepared.get_submodule(str(node.target))).values():
                add_tensor(digest, tensor)
    add_samples(digest, samples)
    return digest.hex()


def _is_known(node: Node, prepared: GraphModule) -> bool:
    if node.op != "call_module":
        return is_known(node, prepared)
    observer = prepared.get_submodule(str(node.target))
    return isinstance(observer, ObserverBase) and type(observer).__module__.split(".")[0] in KNOWN_OBSERVERS


def _settings(observer: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the class of an observer and its plain attributes, as pairs of a name and a text."""
    yield "class", f"{type(observer).__module__}.{type(observer).__qualname__}"
    for name, value in sorted(vars(observer).items()):
        if isinstance(value, (bool, int, float, str, tuple, torch.dtype, torch.qscheme)):
            yield name, repr(value)


def _observers(prepared: GraphModule) -> dict[str, nn.Module]:
    return {
        str(node.target): prepared.get_submodule(str(node.target))
        for node in prepared.graph.nodes
        if node.op == "call_module"
    }


def _buffers(observer: nn.Module) -> dict[str, torch.Tensor]:
    return dict(observer.named_buffers())


def save(store: Store, key: str, prepared: GraphModule) -> None:
    """Store the buffers of all observers of a calibrated module under ``key``."""
    facts: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for target, observer in _observers(prepared).items():
        for name, tensor in _buffers(observer).items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            facts.append({"observer": target, "name": name, "dtype": dtype, "shape": list(tensor.shape)})
            blobs.append(bytes_of(tensor))
    store.put(KIND, key, packed({"buffers": facts}, blobs))


def restore(store: Store, key: str, prepared: GraphModule) -> bool:
    """Load the buffers of all observers from the cache entry ``key`` into the prepared module, and return True.

    Return False and change nothing if the cache has no entry for exactly these observers.
    """
    data = store.get(KIND, key)
    if data is None:
        return False
    observers = _observers(prepared)
    wanted = {(target, name) for target, observer in observers.items() for name in _buffers(observer)}
    try:
        facts, blobs = unpacked(data)
        found: dict[tuple[str, str], torch.Tensor] = {}
        for item, blob in zip(facts["buffers"], blobs, strict=True):
            dtype = getattr(torch, item["dtype"])
            tensor = torch.frombuffer(bytearray(blob), dtype=dtype) if blob else torch.empty(0, dtype=dtype)
            found[item["observer"], item["name"]] = tensor.reshape(item["shape"]).clone()
    except UNREADABLE:
        return False
    if found.keys() != wanted:
        return False
    for (target, name), tensor in found.items():
        setattr(observers[target], name, tensor)
    return True


def calibrate_and_quantize(
    model: ExportedProgram | GraphModule,
    calibration_inputs: Iterable[tuple[Any, ...] | ModelInputs],
    quantizer: Quantizer,
    is_qat: bool = False,
    train_fn: Callable[[GraphModule], None] | None = None,
    after_sample: Callable[[int], None] | None = None,
) -> GraphModule:
    """Return the model with quantize and dequantize nodes.

    Args:
        model: The exported float model.
        calibration_inputs: Tuples of the model's arguments. The scales come from these inputs.
        quantizer: The quantizer, with the same ``is_qat``.
        is_qat: True inserts fake quantization for training.
        train_fn: A function that trains the module in place. The module is in training mode; ``train`` and ``eval``
            work on it. Calibration runs only without this function.
        after_sample: A function that is called with the number of finished samples.

    Returns:
        The quantized module, for ``torch.export.export``.

    Raises:
        InvalidOptionError: There are no calibration inputs, the model can't run on one of them, ``is_qat`` differs
            from the quantizer's, or there is ``train_fn`` without ``is_qat``.

    >>> import torch
    >>> inputs = (torch.ones(1, 4),)
    >>> exported = torch.export.export(torch.nn.Linear(4, 2), inputs)
    >>> quantized = calibrate_and_quantize(exported, [inputs], NeutronQuantizer())
    >>> quantized(*inputs).shape
    torch.Size([1, 2])
    """
    if isinstance(quantizer, NeutronQuantizer) and quantizer.is_qat != is_qat:
        raise InvalidOptionError(
            f"is_qat: it is {is_qat}, and the quantizer's is {quantizer.is_qat}. Pass NeutronQuantizer(spec, is_qat={is_qat})."
        )
    if train_fn is not None and not is_qat:
        raise InvalidOptionError("train_fn: it is for training with quantization simulated. Pass is_qat=True too.")
    module = model.module(check_guards=False) if isinstance(model, ExportedProgram) else model
    assert isinstance(module, GraphModule)
    if is_qat:
        with step("Preparing"):
            prepared = prepare_training(module, quantizer)
        if train_fn is not None:
            with step("Training"):
                train_fn(set_training(prepared, True))
        else:
            calibrate(set_training(prepared, False), calibration_inputs, after_sample)
        with step("Converting"):
            return converted(prepared)
    with step("Preparing"):
        if isinstance(quantizer, NeutronQuantizer):
            quantizer.begin(module)
            quantizer.samples = calibration_inputs = FirstSamples(calibration_inputs)
        fold_batch_norms(module)
        prepared = prepare_pt2e(module, quantizer)
    calibrate_or_restore(prepared, calibration_inputs, after_sample)
    with step("Converting"):
        return convert_pt2e(prepared)


def calibrate_or_restore(
    prepared: GraphModule,
    calibration_inputs: Iterable[tuple[Any, ...] | ModelInputs],
    after_sample: Callable[[int], None] | None = None,
) -> None:
    """Calibrate the prepared model, or load the observers' statistics from the cache that the current compile uses.
    The statistics of a new calibration are stored in this cache.

    Raises the errors of ``calibrate``. With a cache, all samples are held in memory at once, because the key of the
    entry has their hash.
    """
    store = current()
    if store is None:
        calibrate(prepared, calibration_inputs, after_sample)
        return
    with step("Looking up the ranges"):
        samples = list(calibration_inputs)
        key = key_of(prepared, samples) if samples else None
        if key is not None and restore(store, key, prepared):
            return
    calibrate(prepared, samples, after_sample)
    if key is not None:
        save(store, key, prepared)


def calibrate(
    prepared: GraphModule,
    calibration_inputs: Iterable[tuple[Any, ...] | ModelInputs],
    after_sample: Callable[[int], None] | None = None,
) -> None:
    """Run the prepared model on every sample, so that its observers see the activations. Warn if the model returns NaN for a sample.

    Raises InvalidOptionError if there are no samples, or if the model can't run on one.
    """
    done, undefined = 0, None
    with torch.no_grad(), step("Calibrating"):
        for sample in calibration_inputs:
            try:
                if isinstance(sample, ModelInputs):
                    results = prepared(*sample.args, **sample.kwargs)
                else:
                    results = prepared(*(sample if isinstance(sample, (tuple, list)) else (sample,)))
            except (OpenNeutronError, AssertionError):
                raise
            # The operators may raise anything, for example for an index outside of a table.
            except Exception as error:
                raise InvalidOptionError(
                    f"calibration: the model can't be run on sample {done}: {first_line(error)} ({type(error).__name__}). "
                    "Pass inputs that the float model takes."
                ) from error
            floats = [value for value in tree_leaves(results) if isinstance(value, torch.Tensor)]
            if undefined is None and any(bool(value.isnan().any()) for value in floats if value.is_floating_point()):
                undefined = done
            done += 1
            if after_sample is not None:
                after_sample(done)
    if undefined is not None:
        warn(
            f"calibration: the float model returns NaN for sample {undefined}, and int8 has no such value: the compiled model "
            "returns a number there. Check the model on that sample."
        )
    if not done:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from at least one. "
            "Pass some typical inputs, each a tuple of the model's arguments."
        )


_aten = torch.ops.aten
_TRAINING = {
    BATCH_NORM: 5,
    normalized: TRAINING_PLACE,
    _aten.dropout.default: 2,
    _aten.feature_dropout.default: 2,
    _aten.alpha_dropout.default: 2,
}
"""Operators that compute something else in training than in inference, each with the index of its argument ``training``."""


def prepare_training(module: GraphModule, quantizer: Quantizer) -> GraphModule:
    """Return the module with fake quantization for training. Its methods ``train`` and ``eval`` work as on any module.

    With a NeutronQuantizer, batch normalizations are trained together with the layer in front, whatever kind the layer is. With another
    quantizer, torchao handles batch normalizations.
    """
    return with_modes(prepare_qat_pt2e(begun(module, quantizer), quantizer))


def begun(module: GraphModule, quantizer: Quantizer) -> GraphModule:
    """Return the module ready for torchao's ``prepare_qat_pt2e``. With a NeutronQuantizer, batch normalizations are simulated inside their
    layers first (``SimulateBatchNorm``)."""
    if isinstance(quantizer, NeutronQuantizer):
        quantizer.begin(module)
        SimulateBatchNorm(quantizer.keeps_float)(module)
    return module


def with_modes(prepared: GraphModule) -> GraphModule:
    """Replace the methods ``train`` and ``eval`` of an exported module by functions that call ``set_training``, and return the module."""

    def train(model: GraphModule, mode: bool = True) -> GraphModule:
        return set_training(model, mode)

    def evaluate(model: GraphModule) -> GraphModule:
        return set_training(model, False)

    prepared.train = MethodType(train, prepared)
    prepared.eval = MethodType(evaluate, prepared)
    return prepared


def set_training(module: GraphModule, mode: bool) -> GraphModule:
    """Switch all batch normalizations and dropouts of an exported module to training or to inference, in place. Return the module."""
    for node in module.graph.nodes:
        place = _TRAINING.get(node.target) if node.op == "call_function" else None
        if place is not None and len(node.args) > place:
            node.update_arg(place, mode)
    module.recompile()
    return module


def converted(prepared: GraphModule) -> GraphModule:
    """Return the trained module with quantize and dequantize nodes. The scales of weights are computed from the trained weights."""
    return with_biases(convert_pt2e(ended(prepared)))


def ended(prepared: GraphModule) -> GraphModule:
    """Return the trained module ready for torchao's ``convert_pt2e``.

    It is in inference mode, its batch normalizations are folded, and its observers have observed the folded weights.
    """
    set_training(prepared, False)
    for node in list(prepared.graph.nodes):
        # A module exported in training mode counts its batches.
        if node.target is _aten.add_.Tensor and str(getattr(node.args[0], "target", "")).endswith(
            "num_batches_tracked"
        ):
            prepared.graph.erase_node(node)
    FoldConstants()(prepared)
    FoldSimulatedBatchNorm()(prepared)
    with torch.no_grad():
        for fake, value in constant_users(prepared):
            observer = getattr(fake, "activation_post_process", None)
            if isinstance(fake, FakeQuantizeBase) and isinstance(observer, nn.Module):
                observer(value)
    return prepared


def with_biases(quantized: GraphModule) -> GraphModule:
    """Return the converted module with int32 biases in place of float biases, such as those that folding batch
    normalizations added (``QuantizeBiases``). The module changes in place."""
    QuantizeBiases()(quantized)
    return quantized


_q = torch.ops.quantized_decomposed


@dataclass(frozen=True, slots=True)
class QuantizeBiases(NodePass):
    """Quantize the constant biases that are still float in a quantized graph after training or folding.

    Each becomes int32 with the scale (input scale * weight scale). A bias stays float if the layer has int16
    activations, or if its input or weight is not quantized.
    """

    targets = (*CONVOLUTIONS, torch.ops.aten.linear.default)

    def rewrite(self, module: GraphModule, layer: Node) -> bool:
        given = arguments_of(layer)
        bias = constant_of(module, given["bias"])
        data, weight = _scales(module, given["input"]), _scales(module, given["weight"])
        if bias is None or not bias.is_floating_point() or data is None or weight is None:
            return False
        if quantized_dtype(given["input"]) == torch.int16:
            return False  # lowering stores it as int64
        scale = (data * weight).float()
        if scale.numel() > 1:
            # Groups of a transposed convolution share the scales of their output channels.
            scale = scale.repeat(bias.numel() // scale.numel())
        rounded = torch.round(bias.double() / scale.double()).clamp(INT32_MIN, INT32_MAX).to(torch.int32)
        stem = str(getattr(given["bias"], "target", layer.name))
        constant = add_constant(module, layer, f"{stem}_int32", rounded)
        if scale.numel() == 1:
            arguments: tuple[Any, ...] = (constant, float(scale), 0, INT32_MIN, INT32_MAX, torch.int32)
            target = _q.dequantize_per_tensor.default
        else:
            scales = add_constant(module, layer, f"{stem}_scales", scale)
            zeros = add_constant(module, layer, f"{stem}_zero_points", torch.zeros_like(scale, dtype=torch.int32))
            arguments = (constant, scales, zeros, 0, INT32_MIN, INT32_MAX, torch.int32)
            target = _q.dequantize_per_channel.default
        with module.graph.inserting_before(layer):
            dequantized = module.graph.call_function(target, arguments)
        dequantized.meta = {key: value for key, value in layer.meta.items() if key != "val"}
        dequantized.meta["val"] = given["bias"].meta.get("val")
        layer.args = (*layer.args[:2], dequantized, *layer.args[3:])
        layer.kwargs = {name: value for name, value in layer.kwargs.items() if name != "bias"}
        return True


def _scales(module: GraphModule, node: Node) -> torch.Tensor | None:
    """Return the scale or the scales of a dequantize node as a float64 vector, or None for any other node."""
    if node.target is _q.dequantize_per_tensor.default:
        return torch.tensor(float(node.args[1]), dtype=torch.float64).reshape(1)
    if node.target in (_q.dequantize_per_tensor.tensor, _q.dequantize_per_channel.default):
        found = constant_of(module, node.args[1])
        return None if found is None else found.double().reshape(-1)
    return None
