# SPDX-License-Identifier: BSD-3-Clause
"""Compare results that the NPU of i.MX 95 rescales with LiteRT's, under each hypothesis about how the NPU rounds.

Each network is compiled with every product as a job and ``rescale="npu"``, and runs on the model of the NPU. So does each product by itself,
from random inputs, so that no difference of an earlier layer is counted.
"""

from __future__ import annotations

from typing import Any

TITLE = "Results rescaled on the NPU of i.MX 95, by hypothesis about its rounding, beside LiteRT's"

HYPOTHESES = {
    "halves up": {"rounding": "half_up"},
    "halves to even": {"rounding": "half_even"},
    "halves away from zero": {"rounding": "half_away"},
    "truncated": {"rounding": "truncate"},
    "toward zero": {"rounding": "toward_zero"},
    "halves up, word 10 added": {"rounding": "half_up", "zero_point": "added"},
    "halves up, not saturated": {"rounding": "half_up", "saturation": "wrap"},
}


def measure() -> dict[str, Any]:
    """Return for each shared network and hypothesis the largest differences from LiteRT, and the share of results that differ."""
    from openneutron import litert
    from openneutron.compiler import CompileOptions, compile_graph
    from openneutron.targets import get
    from tests.fuzz.driver import every_product
    from tests.support import oracle
    from tests.support.made_networks import models_folder

    target, options = get("imx95-driver"), CompileOptions(target="imx95-driver", rescale="npu", check=False)
    results: dict[str, Any] = {}
    for path in sorted(models_folder().glob("*.tflite")):
        graph = litert.read(path).graph
        made = []
        for one in (graph, *_layers(graph)):
            with every_product():
                compiled = compile_graph(one, target, options)
            inputs = oracle.random_inputs(one, 1)
            rescaled = sum(not item.is_exact for item in compiled.report.jobs)
            if rescaled:
                made.append(
                    (compiled, inputs, oracle.reference_outputs(one, inputs), len(compiled.report.jobs), rescaled)
                )
        results[path.stem] = {
            "jobs": made[0][3],
            "rescaled": made[0][4],
            **{name: _differences(made, variant) for name, variant in HYPOTHESES.items()},
        }
    return results


def _layers(graph: Any) -> list[Any]:
    """Return a graph for each convolution and fully connected layer."""
    from dataclasses import replace

    found = []
    for node in graph.nodes:
        if node.op in ("conv_2d", "fully_connected"):
            used = [name for name in (*node.inputs, *node.outputs) if name is not None]
            tensors = {name: graph[name] for name in used}
            found.append(replace(graph, tensors=tensors, nodes=(node,), inputs=node.inputs[:1], outputs=node.outputs))
    return found


def _differences(made: list[Any], variant: dict[str, str]) -> dict[str, float]:
    """Return the largest difference of the network's output, and of a layer's from exact inputs, and the share of the latter that differ."""
    import numpy as np

    from openneutron.device.device_model import DeviceModel
    from tests.support import oracle

    largest, differ, count = [], 0, 0
    with DeviceModel(**variant) as model:
        for compiled, inputs, wanted, _, _ in made:
            got = oracle.simulated_outputs(compiled, inputs)
            steps = np.concatenate(
                [np.abs(a.astype(int) - b.astype(int)).reshape(-1) for a, b in zip(got, wanted, strict=True)]
            )
            largest.append(int(steps.max()))
            if len(largest) > 1:
                differ, count = differ + int((steps > 0).sum()), count + steps.size
        assert not model.counts().violations, model.violation()
    return {"output": largest[0], "layer": max(largest[1:]), "share": differ / count}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and lines of the printed table."""
    heads = (
        "network",
        "jobs",
        "rescaled by the NPU",
        "hypothesis",
        "of the output",
        "of a layer",
        "results of layers that differ",
    )
    lines = [
        (name, str(found["jobs"]), str(found["rescaled"]), hypothesis, *(str(found[hypothesis][key]) for key in ("output", "layer")),
         f"{found[hypothesis]['share']:.4%}")
        for name, found in results.items()
        for hypothesis in HYPOTHESES
    ]  # fmt: skip
    return heads, lines
