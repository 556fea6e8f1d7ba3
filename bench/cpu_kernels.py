# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions of ExecuTorch's kernels for the CPU, and compare networks that have operators outside of the NPU.

``python -m bench.cpu_kernels networks`` compiles three networks for i.MX 95 with ExecuTorch's own kernels, with XNNPACK, and with the
defaults: XNNPACK on i.MX 95 and cuts by cost. It prints the modelled time, and the time of this machine for the operators on the CPU.

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
from itertools import pairwise
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
    rows, columns = torch.arange(127, -1, -1), torch.arange(VALUES // 128 - 1, -1, -1)
    yield "index", Of(lambda x: x[:, rows[:, None], columns]), (values,), VALUES
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


class Detector(nn.Module):
    """A detector without anchors (FCOS, arXiv 1904.01355) that decodes on the CPU: the best places of all, then the best boxes of these by
    class and centerness."""

    def __init__(self) -> None:
        super().__init__()
        channels = (3, 16, 32, 64)
        layers = [[nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()] for before, after in pairwise(channels)]
        self.body = nn.Sequential(*(layer for pair in layers for layer in pair))
        self.classes, self.centers, self.sides = (
            nn.Conv2d(64, 8, 3, 1, 1),
            nn.Conv2d(64, 1, 3, 1, 1),
            nn.Conv2d(64, 4, 3, 1, 1),
        )

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.body(image)
        scores, best = torch.topk(self.classes(found).amax(1).flatten(1), 128)
        centers = self.centers(found).flatten(1).gather(1, best)
        sides = self.sides(found).flatten(2).gather(2, best[:, None].expand(-1, 4, -1))
        quality, order = torch.topk(torch.sigmoid(scores) * torch.sigmoid(centers), 32)
        return quality, sides.gather(2, order[:, None].expand(-1, 4, -1))


def networks() -> Iterator[tuple[str, str, nn.Module, torch.Tensor, tuple[str, ...]]]:
    """Yield a name, a target, a network, its input and what stays float in it."""
    from tests.suites.architectures import absent_torchvision

    absent_torchvision.install()
    import timm

    timm.layers.set_fused_attn(False)  # a softmax of its own
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224", img_size=96)
    yield (
        "ViT-tiny, 96 x 96, LayerNorm and softmax in float",
        "imx95",
        vit,
        torch.randn(1, 3, 96, 96),
        ("*norm*", "aten.softmax.int"),
    )
    mobilenet = timm.create_model("mobilenetv2_100")
    yield (
        "MobileNetV2, last stage in float",
        "imx95",
        mobilenet,
        torch.randn(1, 3, 224, 224),
        ("blocks.6*", "conv_head", "bn2*", "classifier"),
    )
    for target in ("imx95", "imxrt700"):
        torch.manual_seed(0)
        yield f"detector, decoding on the CPU of {target}", target, Detector(), torch.randn(1, 3, 128, 128), ()


VARIANTS: dict[str, dict[str, Any]] = {
    "portable": {"cpu": "portable", "cut_by_cost": False},
    "xnnpack": {"cut_by_cost": False},
    "default": {},
}


def cpu_milliseconds(program: Any, inputs: tuple[torch.Tensor, ...], runs: int = 3) -> float:
    """Return the time of this machine for the operators and delegate calls outside of the NPU's programs, in the fastest of some runs."""
    from executorch.devtools import Inspector

    from openneutron.device import pte
    from openneutron.pytorch.run.runner import Runner

    (method,) = (method for method in pte.methods(program.buffer) if method.name == "forward")
    backends = [
        method.delegates[item.delegate].backend for item in method.instructions if isinstance(item, pte.DelegateCall)
    ]
    runner = Runner("network", program.buffer, traced=True)
    for _ in range(runs + 1):
        runner.run(inputs)
    with tempfile.NamedTemporaryFile(suffix=".etdump") as file:
        file.write(runner.etdump())
        file.flush()
        events = [event for block in Inspector(etdump_path=file.name).event_blocks for event in block.events]
    best = []
    for run in range(runs):
        own = [event.perf_data.raw[run] for event in events if event.name == "OPERATOR_CALL"]
        calls = [event.perf_data.raw[run] for event in events if event.name == "DELEGATE_CALL"]
        own += [time for time, backend in zip(calls, backends, strict=True) if backend != pte.BACKEND_ID]
        best.append(sum(own))
    return min(best)


def compare(only: Sequence[str] = ()) -> None:
    """Print the modelled time and the time of this machine for each network and variant. ``only`` has first words of networks."""
    import openneutron
    from openneutron.api.pytorch import CompiledModel

    for name, target, network, image, floats in networks():
        if only and name.split(",")[0].split()[0] not in only:
            continue
        for variant, given in VARIANTS.items():
            if target == "imxrt700" and variant == "xnnpack":
                continue
            program = openneutron.compile(
                network.eval(),
                (image,),
                calibration=[(image,)],
                options=openneutron.CompileOptions(target=target, **given),
                quantization=openneutron.QuantizationOptions(keep_float=floats),
            )
            assert isinstance(program, CompiledModel)
            report = program.report
            parts = [
                f"{part} {found.milliseconds:.3f} ({found.least:.3f} to {found.most:.3f})"
                for part, found in report.latency.parts().items()
            ]
            low, high = report.band
            cuts = sum(item.rule == "cost" for item in program.delegation.on_cpu)
            print(
                f"{name}; {variant}: modelled {report.milliseconds:.3f} ms ({low:.3f} to {high:.3f}): {', '.join(parts)}"
            )
            print(
                f"  {len(program.partitions)} programs, {report.cpu_parts} calls of XNNPACK, {report.computed_on_cpu} operators on the CPU, "
                f"{cuts} of them by cost, {report.host_operators_not_modelled} not modelled; operators on the CPU here: "
                f"{cpu_milliseconds(program, (image,)):.3f} ms",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        write_table(Path(sys.argv[2]))
    else:
        compare(sys.argv[2:])
