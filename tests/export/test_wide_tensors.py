# SPDX-License-Identifier: BSD-3-Clause
"""Bundles of models with int16 inputs and outputs: descriptors, real values, and the example in QEMU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron.cli import main
from openneutron.compiler import compile_graph
from openneutron.features.export.bundle import export_bundle
from openneutron.features.export.deployment import Quantization
from openneutron.ir import Graph, Node, constant
from tests.export.bundles import SANITIZERS, built, constant_bytes, host_program, piped, run
from tests.support import oracle
from tests.support.litert_files import graph_file
from tests.support.tools import required

pytestmark = [
    pytest.mark.int16,
    pytest.mark.without_tiles("a bundle is firmware of a core that runs the kernels"),
]

MAIN = Path(__file__).parent / "api_main.c"


def _resized() -> Graph:
    """A sum of two int16 tensors, resized."""
    shape, result = (1, 5, 4, 3), (1, 7, 9, 3)
    tensors = [oracle.wide_activation("sum", shape, 3e-4), oracle.wide_activation("y", result, 3e-4)]
    nodes = [
        Node("add", ("a", "b"), ("sum",), {"activation": "NONE", "pot_scale_int16": False}),
        Node("resize_bilinear", ("sum", "size"), ("y",), {"align_corners": False, "half_pixel_centers": True}),
    ]
    inputs = [oracle.wide_activation("a", shape, 2e-4), oracle.wide_activation("b", shape, 1e-4)]
    return oracle.graph_of(inputs, nodes, [constant("size", np.array(result[1:3], np.int32)), *tensors])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = _resized()
    path = tmp_path_factory.mktemp("wide") / "resized.tflite"
    path.write_bytes(graph_file(graph, compile_graph(graph, oracle.TARGET).program))
    return path


def test_real_values_are_quantized_to_int16_and_back(compiled: Path, tmp_path: Path) -> None:
    bundle = export_bundle(compiled, tmp_path / "bundle")
    scales = [np.float32(tensor.quantization.scale) for tensor in bundle.deployments[0].inputs if tensor.quantization]
    assert bundle.deployments[0].outputs[0].quantization == Quantization(
        float(np.float32(3e-4)), 0, -(2**15), 2**15 - 1
    )
    program = host_program(
        tmp_path / "bundle", tmp_path, MAIN, sanitizers=(*SANITIZERS, "-DMODEL=resized", f"-I{MAIN.parent}")
    )
    random = np.random.default_rng(0)
    values = [random.uniform(-8, 8, (1, 5, 4, 3)).astype(np.float32) for _ in scales]
    values[0].reshape(-1)[:6] = np.nan, np.inf, -np.inf, 100, -100, 2.5 * scales[0]
    given = b"".join(value.tobytes() for value in values)
    with np.errstate(invalid="ignore"):
        steps = [np.rint(value * (np.float32(1) / scale)) for value, scale in zip(values, scales, strict=True)]
    stored = [np.clip(np.nan_to_num(step, nan=-np.inf), -(2**15), 2**15 - 1).astype(np.int16) for step in steps]
    assert piped(program, ["quantize"], given) == b"".join(each.tobytes() for each in stored)
    (want,) = oracle.reference_outputs(_resized(), stored)
    assert piped(program, ["real"], given) == (want.astype(np.float32) * np.float32(3e-4)).tobytes()


def test_the_example_in_qemu(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    required("arm-none-eabi-gcc")
    required("qemu-system-arm")
    monkeypatch.chdir(tmp_path)
    samples = [np.full((1, 5, 4, 3), value, np.float32) for value in (1.5, -0.25)]
    np.savez("samples.npz", input0=samples[0], input1=samples[1])
    assert main(["export", str(compiled), "--to", "bundle", "--golden", "samples.npz"]) == 0
    capsys.readouterr()
    folder = tmp_path / "bundle"
    text = (folder / "model" / "resized_model.c").read_text()
    assert (
        '{"a", OPENNEUTRON_INT16, 120, 60, 4, input0_shape, input0_order, 0.000199999995f, 0, -32768, 32767, ' in text
    )
    assert "input0_shape[] = {1, 5, 4, 3};" in text
    golden = folder / "example" / "golden.c"
    for name, elements, value in (("inputs0", 60, 7500), ("outputs0", 189, 4167)):
        stored = np.frombuffer(constant_bytes(golden, f"openneutron_golden_resized_{name}"), np.int16)
        assert set(stored[:elements]) == {value}
    built(folder)
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "y: 378 of 378 bytes as expected" in done.stdout + done.stderr
