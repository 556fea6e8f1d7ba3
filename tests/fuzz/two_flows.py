# SPDX-License-Identifier: BSD-3-Clause
"""The direct and the raw flow side by side: ``python -m tests.fuzz.two_flows FIRST END`` goes through random modules with the
seeds from FIRST up to END, ``python -m tests.fuzz.two_flows`` through the built-in networks and the architectures.

``openneutron.compile`` makes the quantized program without a second export. ``to_edge_transform_and_lower`` with a
NeutronPartitioner, on the exported quantized module, makes the same payloads, byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn

from openneutron.api.pytorch import CompiledModel, analyse
from openneutron.device import pte
from openneutron.device.third_party import suppressed
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from openneutron.pytorch.source import models
from tests import architectures

MOST_LAYERS = 12


class Drawn(nn.Module):
    """A random network of images: convolutions, norms, activations, pools, branches, attention and operators on the CPU."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        choose = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.channels, self.size = int(choose.choice([3, 8])), int(choose.choice([8, 12, 16]))
        self.parts = nn.ModuleList()
        channels = self.channels
        for _ in range(int(choose.integers(2, MOST_LAYERS + 1))):
            make = _LAYERS[int(choose.integers(len(_LAYERS)))]
            part = make(channels, choose)
            self.parts.append(part)
            channels = getattr(part, "channels", channels)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(1, self.channels, self.size, self.size, generator=torch.Generator().manual_seed(0)),)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class _Function(nn.Module):
    """A function of an image [N, C, H, W], and the channels of its result."""

    def __init__(self, function: Callable[..., Tensor], channels: int, **layers: nn.Module) -> None:
        super().__init__()
        self.function, self.channels = function, channels
        self.layers = nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layers, x)


def _convolution(channels: int, choose: np.random.Generator) -> nn.Module:
    wider, kernel = int(choose.choice([4, 8, 12])), int(choose.choice([1, 3]))
    groups = channels if wider % channels == 0 and choose.integers(2) else 1
    layer = nn.Conv2d(channels, wider, kernel, padding=kernel // 2, groups=groups)
    return _Function(lambda m, x: m["conv"](x), wider, conv=layer)


def _normalized(channels: int, _: np.random.Generator) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU6())


def _layer_norm(channels: int, _: np.random.Generator) -> nn.Module:
    norm = nn.LayerNorm(channels)
    return _Function(lambda m, x: m["norm"](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), channels, norm=norm)


def _branches(channels: int, _: np.random.Generator) -> nn.Module:
    conv = nn.Conv2d(channels, channels, 1)
    return _Function(lambda m, x: torch.cat([torch.sigmoid(m["conv"](x)) * x, x.abs()], 1), 2 * channels, conv=conv)


def _attention(channels: int, _: np.random.Generator) -> nn.Module:
    def function(m: nn.ModuleDict, x: Tensor) -> Tensor:
        flat = x.flatten(2).transpose(1, 2)
        y = flat + nn.functional.scaled_dot_product_attention(m["q"](flat), flat, m["v"](flat))
        return y.transpose(1, 2).reshape(x.shape)

    return _Function(function, channels, q=nn.Linear(channels, channels), v=nn.Linear(channels, channels))


def _on_cpu(channels: int, _: np.random.Generator) -> nn.Module:
    return _Function(lambda m, x: torch.topk(x, x.shape[3], 3).values, channels)


def _activation(channels: int, choose: np.random.Generator) -> nn.Module:
    layers = (
        nn.SiLU(),
        nn.GELU(),
        nn.Hardswish(),
        nn.LeakyReLU(),
        nn.Softmax(1),
        nn.AvgPool2d(3, 1, 1),
        nn.MaxPool2d(3, 1, 1),
    )
    return layers[int(choose.integers(len(layers)))]


_LAYERS = (_convolution, _normalized, _layer_norm, _branches, _attention, _on_cpu, _activation)


def payloads(buffer: bytes) -> list[bytes]:
    """Return the payloads of this project's delegate calls in a ``.pte``."""
    return [bytes(item.payload) for item in pte.delegates(buffer)]


def check(model: nn.Module, inputs: tuple[Tensor, ...]) -> CompiledModel:
    """Compile the model by both flows, and return the direct flow's. Raises AssertionError where payloads differ."""
    with suppressed():
        direct = analyse(model, inputs, calibration=[inputs], name="model")
        partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700", name="model"))
        edge = to_edge_transform_and_lower(
            torch.export.export(direct.quantized, inputs), partitioner=[partitioner], compile_config=_config()
        )
        buffer = bytes(edge.to_executorch().buffer)
    assert payloads(buffer) == payloads(direct.buffer)
    assert [str(item) for item in partitioner.delegations[-1].on_cpu] == [
        str(item) for item in direct.delegation.on_cpu
    ]
    return direct


def _config() -> object:
    from executorch.exir import EdgeCompileConfig

    return EdgeCompileConfig(_core_aten_ops_exception_list=list(core_aten_ops_exception_list), _check_ir_validity=False)


def main(arguments: Sequence[str]) -> int:
    """Check the networks, or the seeds. Return 1 where a pair of flows differs."""
    drawn = ((str(seed), Drawn(seed).eval()) for seed in range(*map(int, arguments))) if arguments else ()
    cases = [(name, model, model.inputs) for name, model in drawn]
    if not arguments:
        cases += [(name, *models.get(name)) for name in models.names()]
        cases += [(name, *architectures.get(name)) for name in architectures.ARCHITECTURES]
    bad, calls = [], 0
    for name, model, inputs in cases:
        try:
            calls += len(check(model, inputs).partitions)
        except AssertionError as error:
            bad.append(name)
            print(f"{name}: {error}", flush=True)
    print(f"{len(cases)} models with {calls} delegate calls; by the two flows differ: {', '.join(bad) or 'none'}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
