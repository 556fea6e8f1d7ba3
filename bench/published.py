# SPDX-License-Identifier: BSD-3-Clause
"""Published latencies of chips with a Neutron NPU, and what each of them contains.

All networks are int8. In NXP's runs SOFTMAX, QUANTIZE and DEQUANTIZE run on the host core. The figures of January 2024 are of the
submission to MLPerf Tiny, whose runs take longer: the same chip's autoencoder takes 5.2 times as long there as in NXP's model zoo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench import child
from openneutron import litert
from openneutron.ir import Graph
from scripts.published_detectors import scrfd_500m, yolov8
from scripts.published_networks import cifarnet, mobilenet_v1

RT700, MCXN, IMX95 = "imxrt700", "mcxn94x", "imx95"


@dataclass(frozen=True, slots=True)
class Figure:
    """A published latency. The host computes so many ``operators`` in it, ``softmax`` values of a SOFTMAX, and ``converted`` values
    of QUANTIZE and DEQUANTIZE.

    ``copies``: it contains copies of all weights from flash. ``is_old``: it is of the release of January 2024. ``tail``: operators on the
    host core of i.MX 95 that decode the results of a detector, as a multiple of those of YOLOv8 at 640 x 640; 0: there are none.
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
    tail: float = 0.0

    def compared(self, error: float, left_out: float) -> dict[str, Any]:
        """Return the figure beside the model's value. Both errors are relative: of the fit, and of a fit that has not seen the figure."""
        return {
            "network": self.network,
            "target": self.target,
            "contents": self.contents,
            "published": self.microseconds,
            "modelled": round(self.microseconds * (1 + error)),
            "error": round(error, 4),
            "left_out": round(left_out, 4),
            "source": self.source,
        }


_EXAMPLES = "NXP's examples, SDK 26.03, Cortex-M33 as host"
_HUB = "NXP's application code hub, January 2024"
_ZOO = "NXP's eIQ model zoo, MCUXpresso SDK 2.13.0"

FIGURES = (
    Figure("CifarNet", RT700, 1027, "NPU, SOFTMAX, DEQUANTIZE", _EXAMPLES, 2, softmax=10, converted=10),
    Figure("DS-CNN", RT700, 485, "NPU alone", "NXP's model runner"),
    Figure("DS-CNN", RT700, 595, "NPU, QUANTIZE, SOFTMAX, DEQUANTIZE", _EXAMPLES, 3, softmax=12, converted=502),
    Figure("MobileNetV1 1.0 224", RT700, 51982, "NPU, copies of weights, SOFTMAX", _EXAMPLES, 1, 1001, copies=True),
    Figure("CifarNet", MCXN, 7130, "NPU, SOFTMAX, DEQUANTIZE", "secondary sources", 2, softmax=10, converted=10),
    Figure("autoencoder", MCXN, 797, "NPU", _ZOO),
    Figure("DS-CNN", MCXN, 3329, "NPU, SOFTMAX", _ZOO, 1, softmax=12),
    Figure("DS-CNN", MCXN, 7164, "NPU, SOFTMAX; release of January 2024", _HUB, 1, softmax=12, is_old=True),
    Figure("autoencoder", MCXN, 4174, "NPU; release of January 2024", _HUB, is_old=True),
)

_PROFILE = "secondary: github.com/duydev294/IMX95_benchmark, operator profile, eIQ Neutron SDK 3.2.2"
_SWEEP = "secondary: github.com/kylefoxaustin/imx95-device-skills, eIQ Neutron SDK 3.1.3"
_DECODED = "NPU, 32 or 33 operators on the host core"

SUBSYSTEM_FIGURES = (
    Figure("MobileNetV1 1.0 224", IMX95, 1200, "NPU, SOFTMAX", _PROFILE.replace("operator profile", "report"), 1, 1001),
    Figure("SCRFD-500M 640", IMX95, 3665, "NPU alone", _PROFILE),
    Figure("YOLOv8n-pose 640", IMX95, 13137, "NPU alone", _PROFILE),
    *(
        Figure(f"YOLOv8{size} 640", IMX95, microseconds, _DECODED, _SWEEP, tail=1.0)
        for size, microseconds in (("n", 32_080), ("s", 52_300), ("m", 101_500), ("l", 182_500), ("x", 305_800))
    ),
)
"""Figures of i.MX 95. The host core decodes the same 8,400 boxes for each size of YOLOv8."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A published figure that no constant is fitted to, in microseconds, and the reason. ``figure``: how to model it; None: its network
    or its share of the host core is not published."""

    network: str
    target: str
    microseconds: str
    reason: str
    source: str
    figure: Figure | None = None


_CHIP_HUB = "the layers are not published; the difference from the static estimate of NXP's converter is the start value of the dispatch"
_OTHER_HOST = (
    "another host core or runtime than the figure of the same network in the fit; its constants are not in the model"
)
_OLDER = "older release of the same figure"
_ON_CPU = "on the CPU alone; it contains no NPU"

COMPARED = (
    Compared("CifarNet", RT700, "1,014", _OTHER_HOST, "NXP's examples, SDK 26.03, HiFi4 as host"),
    Compared("CifarNet", RT700, "1,072", _OTHER_HOST, "NXP's example in ExecuTorch"),
    Compared("DS-CNN", RT700, "576", _OTHER_HOST, "NXP's examples, SDK 26.03, HiFi4 as host"),
    Compared(
        "DS-CNN", RT700, "498 to 511", "its NPU part, 485, and its SOFTMAX, 17, are in the fit", "NXP's model runner"
    ),
    Compared("MobileNetV1 1.0 224", RT700, "69,769; 53,376", _OLDER, "NXP's examples, January 2025 and later"),
    Compared("FOMO 64x64", MCXN, "3,270", _CHIP_HUB, "secondary sources"),
    Compared("CifarNet", RT700, "64,000 to 65,000", _ON_CPU, "NXP's examples"),
    Compared("DS-CNN", RT700, "32,000", _ON_CPU, "NXP's examples"),
    Compared("DS-CNN", MCXN, "67,794; 62,000", _ON_CPU, f"{_HUB}; {_ZOO}"),
    Compared("autoencoder", MCXN, "5,605", _ON_CPU, _ZOO),
    Compared(
        "MobileNetV2 1.0 224",
        IMX95,
        "3,170",
        "converter of 2024 (eIQ Toolkit 1.16), which left 6 of 88 operators to the CPU; their share is not published",
        "secondary: community.toradex.com, thread 29531",
        Figure("MobileNetV2 1.0 224", IMX95, 3170, "NPU, CPU", "", 1, 1000),
    ),
    Compared(
        "MobileNetV2 1.0 320",
        IMX95,
        "87,380",
        "the converter left 66 of 88 operators to the CPU",
        "secondary: community.toradex.com, thread 29531",
    ),
    Compared(
        "YOLOv8s-seg 640",
        IMX95,
        "73,000",
        "one run, in Python, with 35 operators on the host core, which decode masks, too",
        "secondary: doc.edgefirst.ai, eIQ Toolkit 1.17",
    ),
    Compared(
        "YOLOv8s 1024",
        IMX95,
        "145,500",
        "another runtime (SDK 3.1.0, in Python); the host's part is taken as proportional to the boxes",
        "secondary: github.com, YOLOv8s on PHYTEC phyFLEX i.MX 95",
        Figure("YOLOv8s 1024", IMX95, 145_500, "NPU, CPU", "", tail=2.56),
    ),
    Compared(
        "YOLOv8n 640",
        IMX95,
        "11,594",
        "from 86.25 inferences in a second with 4 processes: the longest time that the NPU can take for one",
        _SWEEP,
        Figure("YOLOv8n 640", IMX95, 11_594, "NPU alone", ""),
    ),
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


@cache
def subsystem_networks() -> Mapping[str, Graph]:
    """Return the networks of the figures of i.MX 95."""
    models = {path.stem: path for path in child.shared_models()}
    return {
        "MobileNetV1 1.0 224": mobilenet_v1(),
        "MobileNetV2 1.0 224": litert.read(models["mobilenet_v2_224_random_int8"]).graph,
        "SCRFD-500M 640": scrfd_500m(),
        "YOLOv8n-pose 640": yolov8("n", classes=1, further=51),
        **{f"YOLOv8{size} 640": yolov8(size) for size in "nsmlx"},
        "YOLOv8s 1024": yolov8("s", 1024),
    }
