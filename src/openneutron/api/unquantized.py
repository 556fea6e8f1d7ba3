# SPDX-License-Identifier: BSD-3-Clause
"""An exported model before its quantization."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import length_hint
from typing import Any

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.fx import GraphModule

from openneutron.api.frame import Frame
from openneutron.device.cache import UNREADABLE, Digest, Store, caching, code, packed, record, unpacked
from openneutron.device.timings import advance
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.features.report.outputs import OutputAccuracy
from openneutron.ir import graph as graph_module
from openneutron.isa.payload import Format
from openneutron.options import OPEN, QuantizationOptions, Request, changed
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.digests import add_node, add_samples, is_known, machine
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.partition.compiled import CompiledPartition, Interface, LoweredPartition
from openneutron.pytorch.partition.delegation import Delegation, registered
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.measures import measures_in, quantized_with, quantizer_for
from openneutron.pytorch.source.calibration_data import Calibrated, Calibration
from openneutron.pytorch.source.exporting import SAMPLES, AtenGraph, FirstSamples, ModelInputs, restore


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantized module. ``real`` is its float twin, None without one, and ``samples`` are the first calibration samples."""

    module: GraphModule
    real: GraphModule | None = None
    samples: Sequence[ModelInputs] = ()

    def accuracy(self) -> tuple[OutputAccuracy, ...]:
        """Return the accuracy of the results on the samples; empty without a float twin."""
        if self.real is None or not self.samples:
            return ()
        from openneutron.features.accuracy.outputs import measured

        return measured(self.real, self.module, self.samples)


@dataclass(frozen=True, slots=True, eq=False)
class Unquantized:
    """An exported model, and all that its quantization depends on.

    ``samples`` are those of ``calibration``, ``total`` is their number; 0 where it is not known.
    """

    source: AtenGraph
    request: Request
    target: NeutronTargetSpec
    samples: Iterable[ModelInputs] | None
    total: int
    calibration: Calibration | None

    @classmethod
    def of(cls, source: AtenGraph, request: Request, target: NeutronTargetSpec) -> Unquantized:
        """Return the model. The calibration samples are read when they are needed. Raises as ``Calibration.of`` does."""
        found = Calibration.of(request.calibration, source.inputs, request.data)
        return cls(source, request, target, found, 0 if found is None else length_hint(found), found)

    @property
    def name(self) -> str:
        """Return the name that messages use."""
        return self.request.name

    @property
    def options(self) -> QuantizationOptions:
        """Return the options of the quantization."""
        return self.request.quantization

    @property
    def calibrated(self) -> Calibrated:
        """Return the facts of the calibration; its first sample is known once it was read."""
        return Calibrated() if self.calibration is None else self.calibration.calibrated

    @property
    def is_quantized(self) -> bool:
        """Return whether the model came with its quantization."""
        return any(is_quantize(node) for node in self.source.module.graph.nodes)

    def with_all_samples(self) -> Unquantized:
        """Return the same with the samples of its calibration in memory. Raises InvalidOptionError for an unusable one."""
        return self if self.samples is None or self.is_quantized else replace(self, samples=list(self.samples))

    def quantized(self) -> Quantized:
        """Return the quantized module: the exported module itself where it is not trained, unchanged where it is quantized
        already. It can be called once. There is a float twin where the model is calibrated.

        Raises InvalidOptionError where an option or the calibration data is unusable.
        """
        module, train_fn = self.source.module, self.options.train_fn
        measures, quantizer = (
            measures_in(self.options),
            quantizer_for(self.options, self.target, converter=self.request.options.converter),
        )
        if self.is_quantized:
            given = ("keep_float", "train_fn", "activations", "layer_activations", *measures)
            for option in [name for name in given if name in changed(self.options)]:
                raise InvalidOptionError(f"{option}: '{self.name}' is quantized already. Pass the float model.")
        elif train_fn is not None:
            # A copy: an exported module's parameters are the model's own.
            module = calibrate_and_quantize(copy.deepcopy(module), (), quantizer, is_qat=True, train_fn=train_fn)
        elif self.samples is None:
            raise InvalidOptionError(
                "calibration: there are no samples; int8 scales come from typical inputs. "
                "Pass calibration=[...], each item a tuple of the model's arguments (--calibration on the command line)."
            )
        else:
            total = self.total

            samples = FirstSamples(self.samples)
            real, module = quantized_with(
                module,
                quantizer,
                samples,
                self.options,
                lambda done: advance(done, total if done <= total else done + 1),
            )
            if self.source.state:
                restore(real, self.source.state)
                restore(module, self.source.state)
            return Quantized(module, real, samples.first(SAMPLES))
        if self.source.state:
            restore(module, self.source.state)
        return Quantized(module)


KIND = "model"

LIBRARIES = ("torch", "torchao", "executorch", "flatbuffers", "numpy", "ortools")

READ_AT_THE_END = ("must_delegate", "any_runtime")
"""The delegation options that only the finished program is compared with."""

FROM_WHERE = ("stack_trace", "torch_fn", "custom")
"""The notes of torch.export on a node that quantization and delegation read, beside its modules, and the user's own."""


@dataclass(frozen=True, slots=True, eq=False)
class CachedModel:
    """A model before its compile."""

    partitions: tuple[LoweredPartition, ...]
    delegation: Delegation
    frame: Frame
    outputs: tuple[OutputAccuracy, ...] = ()


def has_key(model: Unquantized) -> bool:
    """Return whether all that the entry of a model depends on is known.

    It is not known of operators of users, random operators, control flow and extents that are no numbers, of training, of
    what NXP's converter compiles, and with a profile, which names the nodes of the exported program.
    """
    source, quantization, options = model.source, model.options, model.request.options
    if options.converter != OPEN or options.profile or quantization.train_fn is not None:
        return False
    if not model.is_quantized and model.samples is None:
        return False
    plain = (str, type, torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    if not all(isinstance(item, plain) for item in (*quantization.keep_float, *model.request.delegation.preserve_ops)):
        return False
    nodes = source.module.graph.nodes
    return all(is_known(node, source.module) and _is_fixed(node.meta.get("val")) for node in nodes)


def key_of(model: Unquantized) -> str:
    """Return the hash of all that the entry of a model depends on. The calibration samples must be in memory."""
    source, quantization, delegation = model.source, model.options, model.request.delegation
    asked = {
        **{item.name: _plain(getattr(quantization, item.name)) for item in fields(quantization)},
        "facts": model.calibrated.facts,
        **{item.name: _plain(getattr(delegation, item.name)) for item in fields(delegation)},
    }
    asked = {name: value for name, value in asked.items() if name not in READ_AT_THE_END}
    digest = Digest(KIND, code(*LIBRARIES), machine(), json.dumps(asked), repr(sorted(registered())))
    for node in source.module.graph.nodes:
        add_node(digest, node, source.module)
        # By values: the keys of module stacks may be addresses.
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        noted = [repr(node.meta.get(name)) for name in FROM_WHERE]
        digest.add(repr((_outline(node.meta.get("val")), modules, noted)).encode())
    digest.add(repr(source.module.graph._codegen.pytree_info).encode())
    digest.add(repr(sorted(name for name, _ in source.module.named_modules())).encode())
    digest.add(repr((source.inputs.structure, [_outline(leaf) for leaf in source.inputs.leaves])).encode())
    if not model.is_quantized:
        add_samples(digest, model.samples or ())
    return digest.hex()


def _name(item: object) -> str:
    return f"{item.__module__}.{item.__qualname__}" if isinstance(item, type) else str(item)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else [_name(item) for item in value]


def _is_fixed(value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else (value,)
    return all(
        all(isinstance(extent, int) for extent in (*item.shape, *item.stride()))
        if isinstance(item, torch.Tensor)
        else not isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool))
        for item in values
    )


def _outline(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_outline(item) for item in value]
    return (value.dtype, tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value


def load(store: Store, key: str) -> CachedModel | None:
    """Return the model of an entry; None where the cache has none that can be read."""
    data = store.get(KIND, key)
    return None if data is None else read(data)


def save(
    store: Store,
    key: str,
    delegation: Delegation,
    frame: Frame,
    parts: Sequence[CompiledPartition],
    specs: Sequence[CompileSpec],
    buffer: bytes,
    outputs: Sequence[OutputAccuracy] = (),
) -> None:
    """Write the entry of a model, where it gives the compiled file ``buffer`` again, byte for byte."""
    lowered = [LoweredPartition(part.name, part.graph, part.interface, part.layers) for part in parts]
    try:
        data = written(CachedModel(tuple(lowered), delegation, frame, tuple(outputs)))
    except TypeError:  # a graph that has no form as data
        return
    found = read(data)
    if found is not None and found.frame.to_bytes([part.payload for part in parts], specs) == buffer:
        store.put(KIND, key, data)


def written(model: CachedModel) -> bytes:
    """Return the entry of a model. Raises TypeError where a graph has no form as data."""
    partitions = []
    blobs = [model.frame.to_bytes([b""] * len(model.partitions), [])]
    for part in model.partitions:
        graph, constants = graph_module.written(part.graph)
        blobs += constants
        partitions.append(
            {
                "name": part.name,
                "graph": graph,
                "constants": len(constants),
                "interface": asdict(part.interface),
                "layers": dict(part.layers),
            }
        )
    facts = {
        "partitions": partitions,
        "places": model.frame.places,
        "delegation": asdict(model.delegation),
        "outputs": [item.to_dict() for item in model.outputs],
    }
    return packed(facts, blobs)


def read(data: bytes) -> CachedModel | None:
    """Return the model of an entry; None where the entry cannot be read by this version."""
    try:
        facts, blobs = unpacked(data)
        frame = Frame.from_bytes(blobs.pop(0), facts["places"])
        partitions = []
        for part in facts["partitions"]:
            constants, blobs = blobs[: part["constants"]], blobs[part["constants"] :]
            graph = graph_module.read(part["graph"], constants)
            graph.verify()
            layers = {str(name): str(words) for name, words in part["layers"].items()}
            partitions.append(LoweredPartition(part["name"], graph, _interface(part["interface"]), layers))
        outputs = tuple(record(OutputAccuracy, item) for item in facts["outputs"])
        return CachedModel(tuple(partitions), record(Delegation, facts["delegation"]), frame, outputs)
    except (*UNREADABLE, OpenNeutronError):
        return None


def _interface(facts: dict[str, Any]) -> Interface:
    return replace(
        record(Interface, {**facts, "formats": {}}),
        formats={tensor: Format(value) for tensor, value in facts["formats"].items()},
    )


def quantized_later(store: Store, key: str, model: Unquantized) -> GraphModule:
    """Return the quantized module of a model that was compiled from the cache.

    Raises InvalidModelError where the weights or the samples have changed since.
    """
    if key_of(model) != key:
        raise InvalidModelError(
            f"'{model.name}': its weights or calibration samples have changed since it was compiled. With a cache the "
            "quantized module is made when it is first read; read it before, or compile without a cache."
        )
    with caching(store):
        return model.quantized().module
