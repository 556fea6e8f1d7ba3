# SPDX-License-Identifier: BSD-3-Clause
"""The networks by name, each as the graphs of its partitions, which are the same on all targets.

A network is quantized once: the graphs are stored in a folder, and each target reads them from there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from openneutron import litert
from openneutron.ir import Graph
from openneutron.ir import graph as graph_module
from openneutron.options import INT8, INT16
from scripts.published_networks import cifarnet, mobilenet_v1
from tests.support.made_networks import models_folder
from tests.support.normalized import OPERATORS

CALIBRATED_WITH = 3
"""Samples of a network from PyTorch whose ranges the quantizer takes."""


@dataclass(frozen=True, slots=True)
class Network:
    """The graphs of a network's partitions. ``on_cpu``: the number of operators that are not delegated."""

    graphs: tuple[Graph, ...]
    on_cpu: int = 0

    def to_bytes(self) -> bytes:
        """Return the network as data."""
        return pickle.dumps(([graph_module.written(graph) for graph in self.graphs], self.on_cpu))

    @classmethod
    def from_bytes(cls, data: bytes) -> Network:
        """Return the network of ``to_bytes``."""
        graphs, on_cpu = pickle.loads(data)
        return cls(tuple(graph_module.read(*graph) for graph in graphs), on_cpu)

    @property
    def has_own_operators(self) -> bool:
        """Return whether LiteRT lacks an operator of the graphs."""
        return any(node.op in OPERATORS for graph in self.graphs for node in graph.nodes)


def _shared(name: str) -> Network:
    return Network((litert.read(models_folder() / f"{name}.tflite").graph,))


def _quantized(model: Any, given: Sequence[Any], name: str, activations: str = INT8) -> Network:
    # The other networks need no torch.
    from openneutron.api.pytorch import analyse
    from openneutron.options import QuantizationOptions

    made = analyse(
        model, given[0], calibration=given, name=name, quantization=QuantizationOptions(activations=activations)
    )
    return Network(tuple(part.graph for part in made.partitions), len(made.delegation.on_cpu))


def _small(name: str) -> Network:
    import torch

    from tests import architectures

    model, example = architectures.get(name)
    random = torch.Generator().manual_seed(architectures.SEED)
    other = tuple(torch.randn(each.shape, generator=random) for each in example)
    return _quantized(model, [example, other], name)


def _of_suite(name: str) -> Network:
    from tests.suites.architectures import models

    model, given = models.get(name)
    return _quantized(model, given[:CALIBRATED_WITH], name)


def _built_in(name: str, activations: str) -> Network:
    from openneutron.pytorch.source import models

    model, _ = models.get(name)
    return _quantized(model, models.samples(name, CALIBRATED_WITH, seed=1), name, activations)


def _yolov8n() -> Network:
    import torch

    from tests.architectures.yolov8 import YoloV8n

    torch.manual_seed(0)
    return _quantized(YoloV8n().eval(), [(torch.randn(1, 3, 224, 224),)], "yolov8n")


SHARED = (
    "mlperf_tiny_ad01_int8",
    "mlperf_tiny_kws_int8",
    "mlperf_tiny_resnet8_int8",
    "mlperf_tiny_vww96_int8",
    "mobilenet_v2_224_random_int8",
)
PUBLISHED: dict[str, Callable[[], Graph]] = {
    "cifarnet": cifarnet,
    "mobilenet_v1_025_128": partial(mobilenet_v1, 0.25, 128),
    "mobilenet_v1_224": mobilenet_v1,
}


def _published(make: Callable[[], Graph]) -> Network:
    return Network((make(),))


def makers() -> dict[str, Callable[[], Network]]:
    """Return what makes each network, by its group and name; quick ones come first.

    shared: the LiteRT files beside the checkout; published: those of ``scripts.published_networks``; built-in: those of
    ``examples``, and the reference networks with states of ``bench`` among them, which are also int16;
    small: those of tests/architectures; suite: those of tests/suites/architectures.
    """
    from bench.reference_networks import NETWORKS as WITH_STATES
    from openneutron.pytorch.source import models
    from tests import architectures
    from tests.suites.architectures.models import ARCHITECTURES

    made: dict[str, Callable[[], Network]] = {f"shared/{name}": partial(_shared, name) for name in SHARED}
    made |= {f"published/{name}": partial(_published, make) for name, make in PUBLISHED.items()}
    made |= {f"built-in/{name}": partial(_built_in, name, INT8) for name in models.names()}
    made |= {f"int16/{name}": partial(_built_in, name, INT16) for name in WITH_STATES}
    made |= {f"small/{name}": partial(_small, name) for name in architectures.ARCHITECTURES}
    made |= {f"suite/{name}": partial(_of_suite, name) for name in ARCHITECTURES}
    made["large/yolov8n_224"] = _yolov8n
    return made


def get(name: str, folder: Path | None = None) -> Network:
    """Return a network; with ``folder``, it is read from there where an earlier call has stored it."""
    path = None if folder is None else folder / f"{name.replace('/', '-')}.network"
    if path is not None and path.is_file():
        return Network.from_bytes(path.read_bytes())
    network = makers()[name]()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(network.to_bytes())
    return network
