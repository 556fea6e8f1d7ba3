# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of volumes, plain and transposed, compute the same as convolutions of images: delegated whole, in
LiteRT's bytes."""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F
from torch import nn

from openneutron.pytorch.operators.convolution import conv3d, conv3d_same_or_valid, conv_transpose3d
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import compiled

SETTINGS = list(
    product(
        ((1, 1, 1), (2, 3, 3), (3, 2, 1)),  # kernel
        ((1, 1, 1), (2, 2, 2), (3, 1, 2)),  # stride
        ((0, 0, 0), (1, 1, 1), (2, 0, 1)),  # padding
        ((1, 1, 1), (2, 1, 2)),  # dilation
        (1, 2, 4),  # groups
    )
)


def test_every_setting_computes_what_pytorch_does() -> None:
    generator = torch.Generator().manual_seed(3)
    volume = torch.randn(2, 4, 7, 6, 5, generator=generator)
    bias = torch.randn(8, generator=generator)
    for kernel, stride, padding, dilation, groups in SETTINGS:
        weight = torch.randn(8, 4 // groups, *kernel, generator=generator)
        wanted = F.conv3d(volume, weight, bias, stride, padding, dilation, groups)
        torch.testing.assert_close(conv3d(volume, weight, bias, stride, padding, dilation, groups), wanted)
        weight = torch.randn(4, 8 // groups, *kernel, generator=generator)
        for behind in ((0, 0, 0), tuple(int(step > 1) for step in stride)):
            got = conv_transpose3d(volume, weight, bias, stride, padding, behind, groups, dilation)
            wanted = F.conv_transpose3d(volume, weight, bias, stride, padding, behind, groups, dilation)
            torch.testing.assert_close(got, wanted)


def test_same_padding_and_no_batch() -> None:
    generator = torch.Generator().manual_seed(4)
    volume, weight = torch.randn(3, 6, 7, 5, generator=generator), torch.randn(4, 3, 3, 2, 3, generator=generator)
    got = conv3d_same_or_valid(volume, weight, None, [1], "same", [1, 2, 2], 1)
    torch.testing.assert_close(got, F.conv3d(volume, weight, None, 1, "same", (1, 2, 2)))
    got = conv3d_same_or_valid(volume, weight, None, [2], "valid", [1], 1)
    torch.testing.assert_close(got, F.conv3d(volume, weight, None, 2, "valid"))


def test_volumes_are_delegated_whole() -> None:
    torch.manual_seed(5)
    dense, grouped, across = (
        torch.randn(6, 4, 3, 3, 3) / 9,
        torch.randn(4, 2, 2, 3, 1) / 3,
        torch.randn(4, 2, 3, 2, 2) / 5,
    )
    norm = nn.BatchNorm3d(6, eps=0.1).eval()
    bias = torch.randn(4)
    small = assert_delegated(
        {
            "padded": lambda m, x: F.conv3d(x, dense, None, 1, 1),
            "strided in depth, grouped": lambda m, x: F.conv3d(x, grouped, bias, (2, 1, 1), 0, 1, 2),
            "dilated in depth, same": lambda m, x: F.conv3d(x, dense, None, 1, "same", (2, 1, 1)),
            "transposed": lambda m, x: F.conv_transpose3d(x, across, bias, 2, 1, 1, 2),
            "normalized": lambda m, x: F.batch_norm(
                F.conv3d(x, dense), norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
            ),
        },
        ((1, 4, 4, 6, 5),),
    )
    # A transposed convolution takes one convolution of images for each phase of its stride; the normalization is folded
    # into the weights.
    assert small.operators.count("conv_2d") == 4
    assert small.operators.count("transpose_conv") == 2
    assert "depthwise_conv_2d" not in small.operators


def test_one_convolution_of_volumes_is_one_of_images() -> None:
    weight = torch.randn(6, 3, 2, 3, 3, generator=torch.Generator().manual_seed(6)) / 7
    small = compiled(lambda m, x: F.relu(F.conv3d(x, weight)), ((2, 3, 4, 6, 5),))
    assert small.operators.count("conv_2d") == 1
    (part,) = small.program.partitions
    (shape,) = (part.graph[node.name].shape for node in part.graph.nodes if node.op == "conv_2d")
    assert shape == (2 * 3, 4, 3, 6)
