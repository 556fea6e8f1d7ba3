# SPDX-License-Identifier: BSD-3-Clause
"""CPU seconds of each step from a PyTorch module to a .pte, for our backend and ExecuTorch's own."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import child

TITLE = "MobileNetV2 224, module to .pte: CPU seconds of each step"
MODEL = "mobilenet_v2"
CALIBRATION_BATCHES = 8
REPEATS = 3
BACKENDS = ("openneutron", "cortex_m", "xnnpack")
STEPS = ("import", "export", "prepare", "calibrate", "convert", "re-export", "lower", "to_executorch")


def measure() -> dict[str, Any]:
    """For each backend, CPU seconds of each step (medians of interleaved runs), of the whole process, and its peak MB.

    A peer that lacks a package of its own is left out.
    """
    runs: dict[str, list[dict[str, float]]] = {backend: [] for backend in BACKENDS}
    for _ in range(REPEATS):
        for backend, measured in runs.items():
            steps = child.module_json("bench.aot_steps", backend)
            if steps is not None:
                measured.append(steps)
    return {
        backend: {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        for backend, measured in runs.items()
        if measured
    }


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("step", *results)
    lines = [(step, *(f"{results[name][step]:.2f}" for name in results)) for step in (*STEPS, "whole")]
    lines.append(("peak MB", *(f"{results[name]['peak_rss_mb']:.0f}" for name in results)))
    lines.append((".pte KB", *(f"{results[name]['pte_bytes'] / 1e3:.0f}" for name in results)))
    return heads, lines


PEERS = Path(__file__).parents[1] / "build" / "peers"
"""Packages that only peers need; last on the path, because they pin other versions than ours."""


class Steps:
    """A stopwatch of CPU time, one named step after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[name] = time.process_time() - start


def run(backend: str, make: Callable[[], tuple[Any, Any, Any]] | None = None) -> dict[str, float]:
    """Return the result of ``measure`` for one backend, measured in this process, which should have done no other work.

    make: the model, its example inputs and batches of samples; without it MobileNetV2 224.
    """
    steps = Steps()
    with steps.step("import"):
        import torch
        from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
        from torch.export import export
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        from openneutron.pytorch.source import models

        quantizer, compile_config, lower_options, after_lowering = backend_flow(backend)
    torch.set_num_threads(1)
    model, example, batches = make() if make else (*models.get(MODEL), models.samples(MODEL, CALIBRATION_BATCHES))
    if backend == "cortex_m":
        # Its quantizer takes channels-last convolutions only, and leaves others in float.
        model = model.to(memory_format=torch.channels_last)
        example = tuple(tensor.to(memory_format=torch.channels_last) for tensor in example)
        batches = [tuple(tensor.to(memory_format=torch.channels_last) for tensor in batch) for batch in batches]
    with steps.step("export"):
        module = export(model, example, strict=True).module(check_guards=False)
    with steps.step("prepare"):
        prepared = prepare_pt2e(module, quantizer)
    with steps.step("calibrate"), torch.no_grad():
        for batch in batches:
            prepared(*batch)
    with steps.step("convert"):
        converted = convert_pt2e(prepared)
    with steps.step("re-export"):
        exported = export(converted, example, strict=True)
    with steps.step("lower"):
        edge = to_edge_transform_and_lower(
            exported, compile_config=compile_config or EdgeCompileConfig(), **lower_options(converted)
        )
        after_lowering(edge)
    with steps.step("to_executorch"):
        program = edge.to_executorch()
    whole = resource.getrusage(resource.RUSAGE_SELF)
    return {
        **steps.seconds,
        "whole": whole.ru_utime + whole.ru_stime,
        "peak_rss_mb": whole.ru_maxrss * 1024 / 1e6,
        "pte_bytes": len(program.buffer),
    }


def backend_flow(name: str) -> tuple[Any, Any, Any, Any]:
    """Quantizer, edge compile configuration, arguments of to_edge_transform_and_lower, and what follows it."""
    import executorch.kernels.quantized  # noqa: F401  (the out variants of the operators of inputs and outputs)

    if name == "openneutron":
        from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
        from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
        from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
        from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer

        target = NeutronTargetSpec("imxrt700")
        spec = generate_neutron_compile_spec("imxrt700")
        return (
            NeutronQuantizer(target),
            None,
            lambda module: {
                "partitioner": [NeutronPartitioner(spec, target, post_quantization_state_dict=module.state_dict())]
            },
            lambda edge: None,
        )
    if name == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )

        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        return quantizer, None, lambda module: {"partitioner": [XnnpackPartitioner()]}, lambda edge: None
    assert name == "cortex_m"
    from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
    from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
    from executorch.backends.cortex_m.target_config import CortexM, CortexMTargetConfig

    def run_passes(edge: Any) -> None:
        # Cortex-M has no partitioner: its passes rewrite the edge program in place.
        passes = CortexMPassManager(
            edge.exported_program(), CortexMPassManager.pass_list, target_config=CortexMTargetConfig(cpu=CortexM.M55)
        )
        edge._edge_programs["forward"] = passes.transform()

    return CortexMQuantizer(), cortex_m_edge_compile_config(), lambda module: {}, run_passes


if __name__ == "__main__":
    sys.path.append(str(PEERS))
    try:
        print(json.dumps(run(sys.argv[1])))
    except ModuleNotFoundError as error:
        if sys.argv[1] == "openneutron":
            raise
        print(f"{sys.argv[1]} is left out: {error}", file=sys.stderr)
        print(json.dumps(None))
