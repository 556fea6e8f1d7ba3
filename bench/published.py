# SPDX-License-Identifier: BSD-3-Clause
"""Published latencies of chips with a Neutron NPU, and what each of them contains.

All networks are int8. In NXP's runs SOFTMAX, QUANTIZE and DEQUANTIZE run on the host core. The figures of January 2024 are of the
submission to MLPerf Tiny, whose runs take longer: the same chip's autoencoder takes 5.2 times as long there as in NXP's model zoo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from bench import child
from openneutron import litert
from openneutron.ir import Graph
from scripts.published_detectors import nanosam_encoder, scrfd_500m, yolov8
from scripts.published_hands import hand_landmark, palm_detection
from scripts.published_networks import cifarnet, mobilenet_v1

RT700, MCXN, IMX95, A55, M33 = "imxrt700", "mcxn94x", "imx95", "cortex-a55", "cortex-m33"

_ON_CPU = "on the CPU alone; it contains no NPU"


class Use(Enum):
    """Where a figure is used."""

    CONSTANTS = "the constants of the chips' files and the estimates are fitted to it"
    ESTIMATES = "the estimates are fitted to it"
    HELD_BACK = "no fit has seen it: predictions are compared with it"
    BOUND = "nothing is fitted to it"


@dataclass(frozen=True, slots=True)
class Figure:
    """A published latency. The host computes so many ``operators`` in it, ``softmax`` values of a SOFTMAX, and ``converted`` values
    of QUANTIZE and DEQUANTIZE.

    ``copies``: it contains copies of all weights from flash. ``is_old``: it is of a release before 2025, with a dispatch of its own.
    ``tail``: operators on the host core of i.MX 95 that decode the results of a detector, as a multiple of those of YOLOv8 at 640 x 640;
    0: there are none. ``host``: microseconds on the host core that are published. ``reason``: why nothing is fitted to a figure.
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
    host: float = 0.0
    use: Use = Use.CONSTANTS
    reason: str = ""

    @property
    def family(self) -> str:
        """Return the family of the network, such as ``YOLOv8``: the networks that are left out together."""
        return next(family for family in FAMILIES if self.network.startswith(family))

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


FAMILIES = (
    "CifarNet",
    "DS-CNN",
    "MobileNet",
    "autoencoder",
    "ResNet",
    "FOMO",
    "SCRFD",
    "YOLOv8",
    "NanoSAM",
    "Qwen3",
    "Danube",
    "VWW",
    "MediaPipe",
)
"""The families of the networks. A name of a network begins with that of its family."""

_NXP = "NXP's examples (nxp-mcuxpresso/mcuxsdk-examples, eiq_examples"
_EXAMPLES = "NXP's examples, SDK 26.03, Cortex-M33 as host"
_RUNNER = "NXP's model runner"
_HUB = "NXP's application code hub, January 2024"
_ZOO = "NXP's eIQ model zoo, MCUXpresso SDK 2.13.0"
_PROFILE = "secondary: github.com/duydev294/IMX95_benchmark, operator profile, eIQ Neutron SDK 3.2.2"
_SWEEP = "secondary: github.com/kylefoxaustin/imx95-device-skills, eIQ Neutron SDK 3.1.3"
_TORADEX = "secondary: community.toradex.com, thread 29531, eIQ Toolkit 1.16"
_NANOSAM = "secondary: github.com/EdgeFirstAI/nanosam, BENCHMARKS.md, BSP 6.12"
_LLAMA = "secondary: github.com/open-ep/llama-neutron, docs/backend/NEUTRON.md, firmware 3.1.1"
_GENAI = "secondary: github.com/avnet-iotconnect, workshop on i.MX 95, eIQ GenAI Flow"

_DECODED = "NPU, 32 or 33 operators on the host core"
_HALF_RUN = "the NPU's part of the same run is in the fit, and the other operators are not modelled"
_STATIC = "an estimate of NXP's converter, not a run"
_NO_LAYERS = "its layers are not published"

LATENCIES = (
    Figure("CifarNet", RT700, 1027, "NPU, SOFTMAX, DEQUANTIZE", _EXAMPLES, 2, softmax=10, converted=10),
    Figure("DS-CNN", RT700, 485, "NPU alone", _RUNNER),
    Figure("DS-CNN", RT700, 595, "NPU, QUANTIZE, SOFTMAX, DEQUANTIZE", _EXAMPLES, 3, softmax=12, converted=502),
    Figure("MobileNetV1 1.0 224", RT700, 51982, "NPU, copies of weights, SOFTMAX", _EXAMPLES, 1, 1001, copies=True),
    Figure("CifarNet", MCXN, 7130, "NPU, SOFTMAX, DEQUANTIZE", "secondary sources", 2, softmax=10, converted=10),
    Figure("autoencoder", MCXN, 797, "NPU", _ZOO),
    Figure("DS-CNN", MCXN, 3329, "NPU, SOFTMAX", _ZOO, 1, softmax=12),
    Figure("DS-CNN", MCXN, 7164, "NPU, SOFTMAX; release of January 2024", _HUB, 1, softmax=12, is_old=True),
    Figure("autoencoder", MCXN, 4174, "NPU; release of January 2024", _HUB, is_old=True),
    Figure("MobileNetV1 1.0 224", IMX95, 1200, "NPU, SOFTMAX", _PROFILE.replace("operator profile", "report"), 1, 1001),
    Figure("SCRFD-500M 640", IMX95, 3665, "NPU alone", _PROFILE),
    Figure("YOLOv8n-pose 640", IMX95, 13137, "NPU alone", _PROFILE),
    *(
        Figure(f"YOLOv8{size} 640", IMX95, microseconds, _DECODED, _SWEEP, tail=1.0)
        for size, microseconds in (("n", 32_080), ("s", 52_300), ("m", 101_500), ("l", 182_500), ("x", 305_800))
    ),
    *(
        replace(figure, use=Use.ESTIMATES)
        for figure in (
            Figure(
                "CifarNet",
                RT700,
                1014,
                "NPU, SOFTMAX, DEQUANTIZE",
                "NXP's examples, SDK 26.03, HiFi4 as host",
                2,
                10,
                10,
            ),
            Figure("CifarNet", RT700, 1072, "NPU, QUANTIZE", f"{_NXP}/executorch_cifarnet)", 1, converted=3072),
            Figure("CifarNet", RT700, 848, "NPU alone", f"{_NXP}/executorch_modelrunner)"),
            Figure("DS-CNN", RT700, 502, "NPU, SOFTMAX; 498 to 511 in three runs", _RUNNER, 1, softmax=12),
            Figure(
                "DS-CNN",
                RT700,
                576,
                "NPU, QUANTIZE, SOFTMAX, DEQUANTIZE",
                "NXP's examples, SDK 26.03, HiFi4 as host",
                3,
                12,
                502,
            ),
            Figure(
                "MobileNetV1 1.0 224",
                RT700,
                53376,
                "NPU, copies of weights, SOFTMAX",
                f"{_NXP}/tflm_label_image_ext_mem), 2025",
                1,
                1001,
                copies=True,
            ),
            Figure(
                "MobileNetV1 0.25 128",
                RT700,
                2759,
                "NPU, SOFTMAX",
                f"{_NXP}/tflm_label_image), SDK 26.06, Neutron software 3.1.1",
                1,
                1001,
            ),
            Figure(
                "ResNet-8",
                MCXN,
                10_600,
                "NPU, SOFTMAX",
                "secondary: a report to this project, which does not state the release",
                1,
                10,
            ),
            Figure(
                "YOLOv8s 1024",
                IMX95,
                145_500,
                "NPU, operators on the host core as many times as there are boxes",
                "secondary: github.com, YOLOv8s on PHYTEC phyFLEX i.MX 95, SDK 3.1.0, in Python",
                tail=2.56,
            ),
            Figure(
                "YOLOv8s-seg 640",
                IMX95,
                73_000,
                "NPU, 35 operators on the host core; one run, in Python; release of 2024",
                "secondary: doc.edgefirst.ai, eIQ Toolkit 1.17",
                tail=1.0,
                is_old=True,
            ),
            Figure(
                "MobileNetV2 1.0 224",
                IMX95,
                3_170,
                "NPU, 6 of 88 operators on the host core; release of 2024",
                _TORADEX,
                1,
                1000,
                is_old=True,
            ),
            Figure(
                "NanoSAM encoder 1024",
                IMX95,
                104_400,
                "NPU, a transposed convolution of about 3 ms on the host core",
                _NANOSAM,
                host=3_000,
            ),
            Figure("Qwen3-1.7B prefill", IMX95, 585e6 / 47.11, "585 tokens, int4 products on the NPU", _LLAMA),
            Figure("Qwen3-1.7B decode", IMX95, 1e6 / 3.96, "a token, int4 products on the NPU", _LLAMA),
            Figure("Qwen3-1.7B prefill", A55, 585e6 / 26.48, "585 tokens, six cores at 1.8 GHz", _LLAMA),
            Figure("Qwen3-1.7B decode", A55, 1e6 / 4.95, "a token, six cores at 1.8 GHz", _LLAMA),
        )
    ),
    *(
        Figure(f"Qwen3-{size} {phase}", target, amount / rate, contents, _LLAMA, use=Use.HELD_BACK)
        for size, rates in (("4B", (19.64, 1.83, 10.90, 2.25)), ("8B", (13.12, 1.15, 6.13, 1.55)))
        for (phase, target, amount, contents), rate in zip(
            (
                ("prefill", IMX95, 585e6, "585 tokens, int4 products on the NPU"),
                ("decode", IMX95, 1e6, "a token, int4 products on the NPU"),
                ("prefill", A55, 585e6, "585 tokens, six cores at 1.8 GHz"),
                ("decode", A55, 1e6, "a token, six cores at 1.8 GHz"),
            ),
            rates,
            strict=True,
        )
    ),
    *(
        replace(figure, use=Use.BOUND)
        for figure in (
            Figure(
                "MobileNetV1 1.0 224",
                RT700,
                69_769,
                "NPU, copies of weights, SOFTMAX",
                f"{_NXP}/tflm_label_image_ext_mem), January 2025",
                reason="older release of the same figure",
            ),
            Figure("FOMO 64x64", MCXN, 3_270, "31 of 32 operators on the NPU", "secondary sources", reason=_NO_LAYERS),
            Figure("FOMO 64x64", MCXN, 353_039 / 150, "NPU alone", "secondary sources", reason=_STATIC),
            Figure("SCRFD-500M 640", IMX95, 15_072, "NPU, 34 operators on the host core", _PROFILE, reason=_HALF_RUN),
            Figure("SCRFD-500M 640", IMX95, 3_510, "NPU alone", _PROFILE, reason=_STATIC),
            Figure("YOLOv8n-pose 640", IMX95, 45_480, "NPU, 72 operators on the host core", _PROFILE, reason=_HALF_RUN),
            Figure("YOLOv8n-pose 640", IMX95, 10_240, "NPU alone", _PROFILE, reason=_STATIC),
            Figure(
                "YOLOv8n 640",
                IMX95,
                1e6 / 86.25,
                "NPU alone, at most",
                _SWEEP,
                reason="from 86.25 inferences in a second with 4 processes: the longest time that the NPU can take for one",
            ),
            Figure(
                "MobileNetV2 1.0 320",
                IMX95,
                87_380,
                "NPU, 66 of 88 operators on the host core",
                _TORADEX,
                reason="most operators are on the host core",
            ),
            Figure(
                "NanoSAM heads",
                IMX95,
                5_800,
                "NPU alone, two graphs",
                _NANOSAM,
                reason="the graphs are not rebuilt here",
            ),
            *(
                Figure(
                    f"Danube-500M {what}",
                    IMX95,
                    microseconds,
                    f"{bits} products on the NPU",
                    _GENAI,
                    reason="the prompt and the operators on the host core are not published",
                )
                for what, bits, microseconds in (
                    ("first token", "int8", 480_000),
                    ("decode", "int8", 1e6 / 13.7),
                    ("first token", "int4", 310_000),
                    ("decode", "int4", 1e6 / 15.9),
                )
            ),
            Figure("CifarNet", M33, 64_000, "Cortex-M33 alone", "NXP's examples", reason=_ON_CPU),
            Figure("DS-CNN", M33, 32_000, "Cortex-M33 alone", "NXP's examples", reason=_ON_CPU),
            Figure("DS-CNN", M33, 67_794, "Cortex-M33 of MCX N alone", _HUB, reason=_ON_CPU),
            Figure("DS-CNN", M33, 62_000, "Cortex-M33 of MCX N alone", _ZOO, reason=_ON_CPU),
            Figure("autoencoder", M33, 5_605, "Cortex-M33 of MCX N alone", _ZOO, reason=_ON_CPU),
            Figure("MobileNetV2 1.0 224", A55, 37_210, "Cortex-A55 alone", _TORADEX, reason=_ON_CPU),
            Figure("NanoSAM encoder 1024", A55, 2_953_250, "Cortex-A55 alone, in float", _NANOSAM, reason=_ON_CPU),
        )
    ),
)
"""Every published latency that is known, in microseconds of one inference. The host core decodes the same 8,400 boxes for each size of
YOLOv8 at 640 x 640."""

FIGURES = tuple(each for each in LATENCIES if each.use is Use.CONSTANTS and each.target != IMX95)
SUBSYSTEM_FIGURES = tuple(each for each in LATENCIES if each.use is Use.CONSTANTS and each.target == IMX95)
"""Figures of i.MX 95 that the constants of its file are fitted to."""

HOST_SHARE = 0.61
"""The share of the time of YOLOv8n at 640 x 640 on i.MX 95 in which a host core works: 0.61 cores (secondary, of the same runs)."""

SOFTMAX_12_MICROSECONDS = 17
"""SOFTMAX over 12 values on the host core of i.MX RT700, in NXP's model runner."""

FOMO_BEYOND_ESTIMATE = 3270 - 353_039 / 150
"""Microseconds between the measured latency of a FOMO 64x64 of 31 operators on MCX N, whose layers are not published, and the static
estimate of NXP's converter: the dispatch, if the estimate does not contain it."""

PREDICTIONS = (
    Figure("VWW", MCXN, 0.0, "NPU, SOFTMAX", "", 1, softmax=2),
    Figure("VWW", MCXN, 0.0, "NPU, SOFTMAX; release of January 2024", "", 1, softmax=2, is_old=True),
    *(
        Figure(f"MediaPipe {name} {size}", RT700, 0.0, "NPU alone", "")
        for name in ("palm detection 192", "hand landmark 224")
        for size in ("lite", "full")
    ),
)
"""Figures that are predicted before they are known, besides those that are held back."""


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
        **{f"MediaPipe palm detection 192 {size}": palm_detection(size == "full") for size in ("lite", "full")},
        **{f"MediaPipe hand landmark 224 {size}": hand_landmark(size == "full") for size in ("lite", "full")},
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
        "YOLOv8s-seg 640": yolov8("s", further=32),
        "NanoSAM encoder 1024": nanosam_encoder(),
    }
