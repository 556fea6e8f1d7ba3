# SPDX-License-Identifier: BSD-3-Clause
"""Compile networks for the Cortex-A55 of i.MX 95, alone and with matrix products on the NPU, and compare their results.

The results with the NPU come from the model of the NPU, which also reports wrong cache maintenance. They are compared with those of our
kernels on the CPU and with those of LiteRT's reference kernels, which a GRU does not have. The modelled times hang on the facts of
``[jobs]`` in the chip's file, most of which are assumed.

``python -m bench driver --qemu`` also runs each program by the library for aarch64 in qemu-user, with the model of the NPU in place of
NXP's library. A large network takes minutes there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from openneutron import targets

OPTIONS = ("qemu",)
TITLE = "Matrix products on the NPU of i.MX 95 by NXP's driver, modelled, beside the Cortex-A55 alone"

BUILT_IN = ("mobilenet_v1", "transformer_encoder", "lstm_kws", "gru_kws")
TIMM = {"resnet50": {"zero_init_last": False}, "vit_tiny_patch16_224": {}}
"""timm's networks of 224 x 224, with what differs from its defaults: other random weights would be 0 in each block's last layer."""

BERT_MINI = {"layers": 4, "width": 256, "heads": 4, "tokens": 128}
"""The sizes of BERT-mini (Turc et al., arXiv 1908.08962), for a classifier of 128 tokens that are embedded outside."""


def networks() -> Iterator[tuple[str, Any]]:
    """Yield names and graphs: the shared files, then the partitions of networks from PyTorch with random weights."""
    from openneutron import litert
    from tests.support.made_networks import models_folder

    for path in sorted(models_folder().glob("*.tflite")):
        yield path.stem, litert.read(path).graph
    for name, module, example in _modules():
        import openneutron

        compiled = openneutron.compile(
            module, example, calibration=[example], name=name, options={"target": "imx95-cpu"}
        )
        for number, part in enumerate(compiled.partitions):
            yield name if not number else f"{name} {number}", part.compiled.graph


LAYERS = ((2048, 2048), (2048, 1024), (2048, 6144), (6144, 2048))
"""Inputs and outputs of the linear layers of Qwen3-1.7B (config.json of Qwen/Qwen3-1.7B: hidden 2048, 16 and 8 heads of 128, intermediate 6144)."""


def layers() -> Iterator[tuple[str, Any]]:
    """Yield names and graphs of single linear layers with random weights of 8 and of 4 bits, for one token and for 128."""
    from tests.jobs.graphs import linear

    for tokens in (1, 128):
        for inputs, outputs in LAYERS:
            for bits in (8, 4):
                yield f"{tokens} x {inputs} x {outputs}, int{bits}", linear(tokens, inputs, outputs, bits)


def _modules() -> Iterator[tuple[str, Any, Any]]:
    from tests.suites.architectures import absent_torchvision

    absent_torchvision.install()
    import timm
    import torch
    from torch import nn

    from openneutron.pytorch.source import models

    for name in BUILT_IN:
        yield name, *models.get(name)
    torch.manual_seed(0)
    for name, changes in TIMM.items():
        yield name, timm.create_model(name, pretrained=False, **changes).eval(), (torch.randn(1, 3, 224, 224),)
    layer = nn.TransformerEncoderLayer(
        BERT_MINI["width"], BERT_MINI["heads"], 4 * BERT_MINI["width"], activation="gelu", batch_first=True
    )
    bert = nn.Sequential(nn.TransformerEncoder(layer, BERT_MINI["layers"]), nn.Linear(BERT_MINI["width"], 2)).eval()
    yield "bert_mini", bert, (torch.randn(1, BERT_MINI["tokens"], BERT_MINI["width"]),)


WITHOUT_LITERT = {"gru", "rnn"}
"""Operators that LiteRT has no int8 kernel for."""


def measure(qemu: bool = False) -> dict[str, Any]:
    """Return for each network the products, the jobs, the modelled times, and whether the results agree.

    Each network runs twice on the model of the NPU: with the jobs that pay, and with all products that a job can compute. With ``qemu``
    each of the two programs runs in qemu-user too.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _measured(Path(folder) if qemu else None)


def _measured(folder: Path | None) -> dict[str, Any]:
    from openneutron.compiler import CompileOptions, compile_graph
    from openneutron.compiler.rewrite.jobs import is_product
    from openneutron.device.device_model import DeviceModel
    from tests.fuzz.driver import every_product
    from tests.support import aarch64, oracle

    run = aarch64.runner_of_jobs(aarch64.library_in(folder)) if folder else None
    alone, beside = targets.get("imx95-cpu"), targets.get("imx95-driver")
    results = {}
    for name, graph in (*networks(), *layers()):
        inputs = oracle.random_inputs(graph, 1)
        cpu = compile_graph(graph, alone, CompileOptions(check=False))
        wanted = _bytes(oracle.simulated_outputs(cpu, inputs))
        found = {
            "products": sum(map(is_product, cpu.schedule.calls)),
            "cpu_milliseconds": alone.milliseconds(cpu.report.overlapped_cycles),
        }
        for key, chosen in (("jobs", nullcontext()), ("all_jobs", every_product())):
            with chosen:
                compiled = compile_graph(graph, beside, CompileOptions(check=False))
            with DeviceModel() as model:
                got = _bytes(oracle.simulated_outputs(compiled, inputs))
                counts = model.counts()
            found[key] = len(compiled.report.jobs)
            found[f"{key}_equal"] = got == wanted
            found[f"{key}_violations"] = counts.violations
            if run is not None:
                found[f"{key}_qemu"] = run(compiled.program, _bytes(inputs)) == wanted
            found[f"{key}_milliseconds"] = beside.milliseconds(compiled.report.overlapped_cycles)
            found[f"{key}_weights"] = len(compiled.program.weights)
            if key == "jobs":
                found["milliseconds"] = beside.milliseconds(compiled.report.overlapped_cycles)
                found["macs_on_npu"] = sum(item.macs for item in compiled.report.jobs) / max(1, compiled.report.macs)
        if WITHOUT_LITERT.isdisjoint(node.op for node in graph.nodes):
            found["litert_equal"] = _bytes(oracle.reference_outputs(graph, inputs)) == wanted
        results[name] = found
    return results


def _bytes(tensors: Sequence[Any]) -> bytes:
    return b"".join(tensor.tobytes() for tensor in tensors)


def _in_words(found: dict[str, Any], *keys: str) -> str:
    """Return whether all of these comparisons found equal bytes; "-" where none was made."""
    made = [found[key] for key in keys if key in found]
    return "-" if not made else "yes" if all(made) else "NO"


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and lines of the printed table."""
    heads = (
        "network", "products", "jobs", "MACs on the NPU", "Cortex-A55 alone, ms", "with the NPU, ms", "all as jobs", "all as jobs, ms",
        "weights of all jobs, KiB", "equal bytes",
        "in qemu", "as LiteRT", "violations",
    )  # fmt: skip
    lines = [
        (
            name,
            str(found["products"]),
            str(found["jobs"]),
            f"{found['macs_on_npu']:.0%}",
            f"{found['cpu_milliseconds']:.2f}",
            f"{found['milliseconds']:.2f}",
            str(found["all_jobs"]),
            f"{found['all_jobs_milliseconds']:.2f}",
            f"{found['all_jobs_weights'] / 1024:,.0f}",
            _in_words(found, "jobs_equal", "all_jobs_equal"),
            _in_words(found, "jobs_qemu", "all_jobs_qemu"),
            _in_words(found, "litert_equal"),
            str(found["jobs_violations"] + found["all_jobs_violations"]),
        )
        for name, found in results.items()
    ]
    return heads, lines
