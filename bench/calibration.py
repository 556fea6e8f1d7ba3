# SPDX-License-Identifier: BSD-3-Clause
"""Observers of calibration: CPU seconds, and how near int8 results are to float ones (SQNR), beside running without any.

``python -m bench calibration``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

from bench import child

TITLE = "Calibration: CPU seconds (with the choice of scales) and SQNR of the result before softmax, dB"
MODELS = ("mobilenet_v2", "resnet8", "ds_cnn", "autoencoder", "demo")
OBSERVERS = ("ours", "torchao histogram", "min-max", "percentile 99.99", "entropy")
NAMES = {"ours": "histogram", "min-max": "minmax", "percentile 99.99": "percentile", "entropy": "entropy"}
"""The names of observers in QuantizationOptions."""

SAMPLES = {"mobilenet_v2": 8}
"""Calibration samples where they are not ``USUAL_SAMPLES``."""
USUAL_SAMPLES = 64
TESTED = 16


def measure() -> dict[str, Any]:
    """For each model and observer CPU seconds and SQNR; ``none`` is the float model on the same samples."""
    return {model: child.module_json("bench.calibration", model) for model in MODELS}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "float s", *OBSERVERS)
    lines = []
    for model, found in results.items():
        cells = (f"{found[name]['seconds']:.2f} s {found[name]['sqnr_db']:.1f} dB" for name in OBSERVERS)
        lines.append((model, f"{found['none']['seconds']:.2f}", *cells))
    return heads, lines


def _run(model: str) -> dict[str, dict[str, float]]:
    import torch
    from torch import nn
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
    from openneutron.pytorch.quantizer.calibrate import calibrate
    from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
    from openneutron.pytorch.quantizer.specs import QuantizationConfig, activation_spec

    torch.set_num_threads(1)
    count = SAMPLES.get(model, USUAL_SAMPLES)
    module, samples = _demo(count) if model == "demo" else _built_in(model, count)
    for name, child_module in list(module.named_modules()):
        # Softmax hides errors: its scale is fixed.
        if isinstance(child_module, nn.Softmax):
            module.set_submodule(name, nn.Identity())
    exported = torch.export.export(module.eval(), samples[0])
    floats = exported.module(check_guards=False)
    tested = samples[count:]
    with torch.no_grad():
        start = time.process_time()
        for sample in samples[:count]:
            floats(*sample)
        found = {"none": {"seconds": time.process_time() - start, "sqnr_db": math.inf}}
        wanted = [floats(*sample) for sample in tested]
    for name in OBSERVERS:
        spec = activation_spec(observer=_observer(name))
        quantizer = NeutronQuantizer(NeutronTargetSpec("imxrt700"))
        quantizer.set_global(QuantizationConfig(input_activation=spec, output_activation=spec))
        prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
        start = time.process_time()
        calibrate(prepared, samples[:count])
        for watching in prepared.modules():
            if hasattr(watching, "calculate_qparams"):
                watching.calculate_qparams()
        seconds = time.process_time() - start
        quantized = convert_pt2e(prepared)
        with torch.no_grad():
            got = [quantized(*sample) for sample in tested]
        noise = sum(float((a - b).square().sum()) for a, b in zip(got, wanted, strict=True))
        signal = sum(float(b.square().sum()) for b in wanted)
        found[name] = {"seconds": seconds, "sqnr_db": 10 * math.log10(signal / noise)}
    return found


def _built_in(model: str, count: int) -> tuple[Any, list[tuple[Any, ...]]]:
    from openneutron.pytorch.source import models

    module, _ = models.get(model)
    return module, models.samples(model, count + TESTED)


def _demo(count: int) -> tuple[Any, list[tuple[Any, ...]]]:
    """The demo's network, trained for a while, and its images."""
    import torch

    from openneutron.features.demo import main_job
    from openneutron.features.demo.main_job import Course, train
    from openneutron.pytorch.source.models.small import CifarNet

    torch.manual_seed(0)
    data = main_job.load(0)
    module = CifarNet()
    train(module, data.train, data.train_labels, 0, lambda: None, Course(epochs=2, learning_rate=2e-3))
    return module, [(image,) for image in (*data.train[:count].split(1), *data.test[:TESTED].split(1))]


def _observer(name: str) -> Any:
    from torchao.quantization.pt2e import HistogramObserver

    from openneutron.pytorch.quantizer.observers import OBSERVER

    return HistogramObserver if name == "torchao histogram" else OBSERVER[NAMES[name]]


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1])))
