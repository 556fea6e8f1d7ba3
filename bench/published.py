# SPDX-License-Identifier: BSD-3-Clause
"""Published latencies of Neutron-C chips, and what each of them contains.

All networks are int8. In NXP's runs SOFTMAX, QUANTIZE and DEQUANTIZE run on the host core. A figure of the release of January 2024 is of
software with another dispatch: the same chip's autoencoder took 5.2 times as long with it as later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bench import child
from openneutron import litert
from openneutron.ir import Graph
from scripts.published_networks import cifarnet, mobilenet_v1

RT700, MCXN = "imxrt700", "mcxn94x"


@dataclass(frozen=True, slots=True)
class Figure:
    """A published latency. The host computes so many ``operators`` in it, ``softmax`` values of a SOFTMAX, and ``converted`` values
    of QUANTIZE and DEQUANTIZE.

    ``copies``: it contains copies of all weights from flash. ``is_old``: it is of the release of January 2024.
    """

    network: str
    target: str
    microseconds: float
    contents: str
    source: str
    operators: int = 0
    softmax: int = 0
    converted: int = 0
    copies: bool = False
    is_old: bool = False


_EXAMPLES = "NXP's examples, SDK 26.03, Cortex-M33 as host"
_HUB = "NXP's application code hub, January 2024"

FIGURES = (
    Figure("CifarNet", RT700, 1027, "NPU, SOFTMAX, DEQUANTIZE", _EXAMPLES, 2, softmax=10, converted=10),
    Figure("DS-CNN", RT700, 485, "NPU alone", "NXP's model runner"),
    Figure("DS-CNN", RT700, 595, "NPU, QUANTIZE, SOFTMAX, DEQUANTIZE", _EXAMPLES, 3, softmax=12, converted=502),
    Figure("MobileNetV1 1.0 224", RT700, 51982, "NPU, copies of weights, SOFTMAX", _EXAMPLES, 1, 1001, copies=True),
    Figure("CifarNet", MCXN, 7130, "NPU, SOFTMAX, DEQUANTIZE", "secondary sources", 2, softmax=10, converted=10),
    Figure("autoencoder", MCXN, 797, "NPU", "secondary sources, after January 2024"),
    Figure("DS-CNN", MCXN, 7164, "NPU, SOFTMAX; release of January 2024", _HUB, 1, softmax=12, is_old=True),
    Figure("autoencoder", MCXN, 4174, "NPU; release of January 2024", _HUB, is_old=True),
)

SOFTMAX_12_MICROSECONDS = 17
"""SOFTMAX over 12 values on the host core of i.MX RT700, in NXP's model runner."""

FOMO_BEYOND_ESTIMATE = 3270 - 353_039 / 150
"""Microseconds between the measured latency of a FOMO 64x64 of 31 operators on MCX N, whose layers are not published, and the static
estimate of NXP's converter: the dispatch, if the estimate does not contain it."""

_UNKNOWN = "NPU, SOFTMAX; not published, or not used here"

ESTIMATES = tuple(
    Figure(network, target, 0.0, _UNKNOWN, "", 1, softmax=values)
    for network, values in (("MobileNetV1 0.25 128", 1001), ("ResNet-8", 10), ("VWW", 2))
    for target in (RT700, MCXN)
)
"""Networks whose latency is estimated beforehand, on both chips."""


@cache
def networks() -> Mapping[str, Graph]:
    """Return the networks of the figures and the estimates. Those of MLPerf Tiny are the trained ones beside the checkout."""
    models = {path.stem: path for path in child.shared_models()}
    return {
        "CifarNet": cifarnet(),
        "DS-CNN": litert.read(models["mlperf_tiny_kws_int8"]).graph,
        "MobileNetV1 1.0 224": mobilenet_v1(),
        "autoencoder": litert.read(models["mlperf_tiny_ad01_int8"]).graph,
        "MobileNetV1 0.25 128": mobilenet_v1(0.25, 128),
        "ResNet-8": litert.read(models["mlperf_tiny_resnet8_int8"]).graph,
        "VWW": litert.read(models["mlperf_tiny_vww96_int8"]).graph,
    }
