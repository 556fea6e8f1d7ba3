# SPDX-License-Identifier: BSD-3-Clause
"""The first steps with an installed package, without extras, checkout and C compiler: a .tflite to the simulated NPU and to
firmware's sources. ``python first_steps.py`` in any folder; cibuildwheel runs it for every Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import openneutron
from openneutron import litert
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.litert.interpret import interpret


def network() -> Graph:
    """Return a convolution with a ReLU."""
    scales = per_tensor(0.05, 3)
    tensors = [
        Tensor("input", (1, 8, 8, 3), DType.INT8, scales),
        constant("weights", np.arange(-108, 108, dtype=np.int8).reshape(8, 3, 3, 3), per_tensor(0.01, 0)),
        constant("bias", np.arange(-400, 400, 100, dtype=np.int32), per_tensor(0.0005, 0)),
        Tensor("output", (1, 8, 8, 8), DType.INT8, scales),
    ]
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    node = Node("conv_2d", ("input", "weights", "bias"), ("output",), {"padding": "SAME", "activation": "RELU", **ones})
    return Graph("first_steps", {tensor.name: tensor for tensor in tensors}, (node,), ("input",), ("output",))


def openneutron_command(*arguments: str) -> str:
    """Return what the installed command prints, with no program on its path."""
    command = [str(Path(sys.executable).parent / "openneutron"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": ""})
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    """Fail where a step does."""
    model = litert.write(network())
    Path("model.tflite").write_bytes(model)
    image = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 3), np.int8)
    np.save("x.npy", image)
    openneutron_command("compile", "model.tflite", "-o", "compiled.tflite")
    openneutron_command("run", "compiled.tflite", "--input", "x.npy", "--output", "result")
    np.testing.assert_array_equal(np.load("result/output0.npy"), interpret(model, [image])[0])
    listed = json.loads(openneutron_command("export", "compiled.tflite", "--to", "bundle", "--json"))
    assert "conv_2d_s8" in listed["kernels"] and (Path("bundle") / listed["files"][0]).exists()
    assert openneutron_command("--version").split() == ["openneutron", openneutron.__version__]
    print(f"openneutron {openneutron.__version__} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
