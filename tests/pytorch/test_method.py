# SPDX-License-Identifier: BSD-3-Clause
"""A .pte without torch's bindings gives the bytes of ExecuTorch's own; what it can't run is left to them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from executorch.exir import to_edge
from torch import nn

from openneutron.device import pte
from openneutron.pytorch.run import method as method_module
from openneutron.pytorch.run.runner import Runner
from tests.support import programs
from tests.support.delegate_calls import SHAPE, plain, random_bytes
from tests.support.delegate_calls import method as delegated


class TwoOutputs(nn.Module):
    """A convolution's result and a sum over a table's rows; every operator on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(3, 4, 3)
        self.table = nn.Embedding(7, 2)

    def forward(self, image: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.conv(image), self.table(places).sum(1)


def on_cpu(module: nn.Module, *inputs: torch.Tensor, **options: Any) -> bytes:
    """Return the .pte of a module without any delegate."""
    return bytes(to_edge(torch.export.export(module.eval(), inputs, strict=False, **options)).to_executorch().buffer)


def test_outputs_are_those_of_the_bindings() -> None:
    image, places = torch.randn(1, 3, 6, 5), torch.tensor([[1, 6, 0]])
    for given in (image, image.contiguous(memory_format=torch.channels_last)):
        data = on_cpu(TwoOutputs(), given, places)
        loaded = method_module.opened(data, "two.pte")
        assert loaded is not None
        assert [(item.dtype, item.shape) for item in loaded.tensors] == [("float32", (1, 3, 6, 5)), ("int64", (1, 3))]
        assert loaded.table_sizes == [None, 7]
        runner = Runner("two.pte", data)
        for _ in range(2):
            found = loaded.run([given.numpy(), places.numpy()])
            wanted = runner.run([given, places])
            assert found is not None
            for ours, theirs in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(ours, theirs.numpy())


class Quantizing(nn.Module):
    """The quantization of one of two inputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default
        return x + 1, quantize(y, 0.1, 0, -128, 127, torch.int8)


def test_nan_in_a_quantized_input_is_a_warning() -> None:
    x = np.ones((1, 3), np.float32)
    nan = np.full_like(x, np.nan)
    loaded = method_module.opened(on_cpu(Quantizing(), torch.ones(1, 3), torch.ones(1, 3)), "q.pte")
    assert loaded is not None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert loaded.run([nan, x]) is not None
        assert not said
        assert loaded.run([x, nan]) is not None
    assert [str(item.message) for item in said] == [
        "'q.pte': input 1 has NaN, for which int8 has no value; the results mean nothing. Repair the input."
    ]


def test_delegates_run_on_the_simulated_npu() -> None:
    x = random_bytes(SHAPE, 5)
    loaded = method_module.opened(
        delegated(plain(programs.through_scratch()).compose(), (random_bytes(SHAPE),)).pte, "x.pte"
    )
    assert loaded is not None
    found = loaded.run([x.numpy()])
    assert found is not None
    np.testing.assert_array_equal(found[0], ~x.numpy())


def test_free_shapes_other_methods_and_other_backends_are_left_to_the_bindings() -> None:
    rows = torch.export.Dim("rows", max=8)
    free = on_cpu(nn.ReLU(), torch.randn(4, 2), dynamic_shapes={"input": {0: rows}})
    assert method_module.opened(free, "free.pte") is None
    data = delegated(plain(programs.through_scratch()).compose(), (random_bytes(SHAPE),)).pte
    assert method_module.opened(data.replace(b"forward", b"outward"), "other.pte") is None
    assert method_module.opened(data.replace(pte.BACKEND_ID.encode(), b"NeutrinoBacken"), "foreign.pte") is None
