# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions of ExecuTorch's kernels for the CPU, and compare networks that have operators outside of the NPU.

``python -m bench.cpu_kernels networks`` compiles three networks for i.MX 95 with ExecuTorch's own kernels, with XNNPACK, and with XNNPACK and cuts
by cost. It prints the modelled time, and the time of this machine for the operators on the CPU.

``python -m bench.cpu_kernels count FOLDER`` counts the instructions of each kind of operator, with ExecuTorch's own kernels and with
XNNPACK, and writes ``src/openneutron/compiler/cost/executorch_kernels.json``. FOLDER has ExecuTorch's wheel for aarch64, unpacked::

    pip download executorch==1.5.1 --platform manylinux_2_28_aarch64 --python-version 3.11 --no-deps -d FOLDER
    cd FOLDER && unzip executorch-*.whl

QEMU's user mode executes ExecuTorch's libraries, and a plugin counts, as in ``bench cortex_a``. The processor that the libraries see is a
Cortex-A55, so that XNNPACK takes the kernels for it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src" / "openneutron" / "compiler" / "cost" / "executorch_kernels.json"
LIBRARIES = ("backend_xnnpack", "kernels_optimized", "kernels_quantized", "threadpool")
RUNS = 2
"""The runs that are counted, after one other."""

VALUES = 1 << 14
IMAGE = (1, 16, 28, 28)


class Of(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.function(*inputs)
        return found


def cases() -> Iterator[tuple[str, nn.Module, tuple[torch.Tensor, ...], float]]:
    """Yield the kind of an operator, a module of one operator, its inputs, and its work: multiply-accumulates of a product, values of the
    result of any other operator."""
    values = torch.linspace(-2, 2, VALUES).reshape(1, 128, VALUES // 128)
    image = torch.linspace(-2, 2, 16 * 28 * 28).reshape(IMAGE)
    functional = nn.functional

    def convolution(outputs: int, taps: int, groups: int = 1) -> nn.Module:
        return nn.Conv2d(16, outputs, taps, padding=taps // 2, groups=groups)

    yield "convolution", convolution(32, 3), (image,), 16 * 32 * 9 * 28 * 28
    yield "depthwise convolution", convolution(16, 3, 16), (image,), 16 * 9 * 28 * 28
    yield "linear layer", nn.Linear(128, 128), (values,), 128 * VALUES
    yield "matrix product", Of(torch.bmm), (values, values.transpose(1, 2).contiguous()), 128 * 128 * 128
    yield "sum", Of(torch.add), (values, values), VALUES
    yield "function", Of(torch.sigmoid), (values,), VALUES
    yield "gelu", nn.GELU(), (values,), VALUES
    yield "softmax", nn.Softmax(-1), (values,), VALUES
    yield "normalization", nn.LayerNorm(128), (values,), VALUES
    yield "move", Of(lambda x: x.transpose(1, 2).contiguous()), (values,), VALUES
    yield "join", Of(lambda x, y: torch.cat((x, y), 1)), (values, values), 2 * VALUES
    yield "reduction", Of(lambda x: x.mean((2, 3), keepdim=True)), (image,), image.numel()
    yield "pool", nn.MaxPool2d(3, 1, 1), (image,), 9 * image.numel()
    yield (
        "bilinear resize",
        Of(lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear")),
        (image,),
        4 * image.numel(),
    )
    yield (
        "bicubic resize",
        Of(lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic")),
        (image,),
        4 * image.numel(),
    )
    yield "index", Of(lambda x: x[:, torch.arange(127, -1, -1)]), (values,), VALUES
    yield "sort", Of(lambda x: torch.topk(x, 16)[0]), (values,), VALUES


def _program(module: nn.Module, inputs: tuple[torch.Tensor, ...], xnnpack: bool) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    exported = torch.export.export(module.eval(), inputs)
    edge = to_edge_transform_and_lower(
        exported,
        partitioner=[XnnpackPartitioner()] if xnnpack else [],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return bytes(edge.to_executorch().buffer)


def _runner(folder: Path, work: Path) -> Path:
    package, runner = folder / "executorch", work / "runner"
    include = package / "include"
    command = [
        *("aarch64-linux-gnu-g++", "-std=c++17", "-O2", "-DC10_USING_CUSTOM_GENERATED_MACROS", f"-I{include}"),
        f"-I{include / 'executorch' / 'runtime' / 'core' / 'portable_type' / 'c10'}",
        *map(
            str,
            (ROOT / "bench" / "executorch_runner.cpp", ROOT / "runtime" / "ports" / "host" / "executorch_method.cpp"),
        ),
        *(
            "-o",
            str(runner),
            "-Wl,--no-as-needed",
            f"-L{package / 'lib'}",
            *(f"-lexecutorch_{name}" for name in LIBRARIES),
        ),
        *("-lexecutorch", f"-Wl,-rpath,{(package / 'lib').resolve()}"),
    ]
    subprocess.run(command, check=True)
    return runner


def _root(work: Path) -> Path:
    """Return a folder with the libraries of the cross compiler and the description of a Cortex-A55."""
    from bench.cortex_a import CPUINFO

    root = work / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "cpuinfo").write_text(CPUINFO)
    (root / "lib").symlink_to("/usr/aarch64-linux-gnu/lib")
    for name, text in (("possible", "0\n"), ("present", "0\n")):
        path = root / "sys" / "devices" / "system" / "cpu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _instructions(runner: Path, root: Path, program: bytes, sizes: Sequence[int]) -> float:
    from bench import aarch64

    path = runner.with_suffix(".pte")
    path.write_bytes(program)
    machine = ["qemu-aarch64", "-cpu", aarch64.CPU, "-L", str(root), "-plugin", str(aarch64.plugin())]
    done = subprocess.run(
        [*machine, str(runner), str(path), str(RUNS), *map(str, sizes)], capture_output=True, text=True, check=False
    )
    counted = re.findall(r"^instructions (\d+)$", done.stderr, re.MULTILINE)
    if done.returncode != 0 or len(counted) != 2:
        raise RuntimeError(f"the program exits with {done.returncode}:\n{done.stderr[-2000:]}")
    return (int(counted[1]) - int(counted[0])) / RUNS


def count(folder: Path) -> dict[str, dict[str, float]]:
    """Return the instructions of each kind of operator for one multiply-accumulate or one value of the result."""
    table: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        runner, root = _runner(folder, work), _root(work)
        for kind, module, inputs, amount in cases():
            portable, other = (_program(module, inputs, xnnpack) for xnnpack in (False, True))
            sizes = [each.numel() * each.element_size() for each in inputs]
            found = {"portable": round(_instructions(runner, root, portable, sizes) / amount, 3)}
            if b"XnnpackBackend" in other:
                found["xnnpack"] = round(_instructions(runner, root, other, sizes) / amount, 3)
            table[kind] = found
            print(f"{kind:24}", *(f"{key} {value:10.3f}" for key, value in found.items()), flush=True)
    return table


def write_table(folder: Path) -> None:
    """Count, and write the table that the cost model reads."""
    facts = {"made_by": "python -m bench.cpu_kernels count FOLDER", "instructions": count(folder)}
    TABLE.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    write_table(Path(sys.argv[2]))
