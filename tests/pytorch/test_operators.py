# SPDX-License-Identifier: BSD-3-Clause
"""Operators one by one: what they become, that the program computes LiteRT's bytes, and how near PyTorch that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.pytorch.operator_cases import Case, check_case
from tests.pytorch.small_models import IMAGE, assert_same_as_litert, compiled

CASES = (
    Case("conv", lambda m, x: m.conv(x), "conv_2d"),
    Case("conv of odd padding", lambda m, x: F.conv2d(x, m.conv.weight, m.conv.bias, 2, (0, 1)), "pad conv_2d"),
    Case("conv without padding", lambda m, x: F.conv2d(x, m.conv.weight, None, 1, 0, 2), "conv_2d"),
    Case("strided conv of padding 1", lambda m, x: F.conv2d(x, m.conv.weight, None, 2, 1), "pad conv_2d"),
    Case("depthwise", lambda m, x: F.conv2d(x, m.conv.weight[:, :1], m.conv.bias, 1, 1, 1, 8), "depthwise_conv_2d"),
    Case("conv padding='same'", lambda m, x: F.conv2d(x, m.conv.weight, m.conv.bias, padding="same"), "conv_2d"),
    Case(
        "conv1d",
        lambda m, x: F.conv1d(x, m.conv.weight[:, :, 0], m.conv.bias),
        "reshape conv_2d reshape",
        ((1, 8, 20),),
    ),
    Case("in-place relus", lambda m, x: m.point(m.relu(m.conv(x))).relu_(), "conv_2d conv_2d"),
    Case("relu6", lambda m, x: F.relu6(F.relu(m.conv(x)) * 4), "conv_2d lookup"),
    Case("relu of a sum", lambda m, x: F.relu(m.conv(x) + m.point(x)), "conv_2d conv_2d add"),
    Case("hardswish", lambda m, x: F.hardswish(m.conv(x)), "conv_2d hard_swish"),
    Case("leaky_relu", lambda m, x: F.leaky_relu(m.conv(x), 0.1), "conv_2d leaky_relu"),
    Case("gate", lambda m, x: torch.sigmoid(m.conv(x)) * m.point(x), "conv_2d conv_2d logistic mul"),
    Case("tanh", lambda m, x: torch.tanh(m.conv(x)), "conv_2d tanh"),
    Case("sub", lambda m, x: m.conv(x) - m.point(x), "conv_2d conv_2d sub"),
    Case("numbers", lambda m, x: F.relu(m.conv(x)) * 2.0 + 1, "conv_2d lookup"),
    Case("division", lambda m, x: F.relu(m.conv(x)) / 4.0, "conv_2d lookup"),
    Case("cat", lambda m, x: torch.cat([m.conv(x), m.point(x)], 1), "conv_2d conv_2d concatenation"),
    Case(
        "cat of a fixed scale",
        lambda m, x: torch.cat([torch.sigmoid(m.conv(x)), m.point(x)], 1),
        "conv_2d conv_2d logistic quantize concatenation",
    ),
    Case("pad", lambda m, x: F.pad(m.conv(x), (1, 2, 3, 4)), "conv_2d pad"),
    Case("pad of 0.5", lambda m, x: F.pad(m.conv(x), (1, 2, 3, 4), value=0.5), "conv_2d padv2"),
    Case("slices", lambda m, x: m.conv(x)[:, 2:6, 1:], "conv_2d slice slice"),
    Case("permute", lambda m, x: m.conv(x).permute(0, 2, 3, 1), "conv_2d"),
    Case("upsample", lambda m, x: F.interpolate(m.conv(x), scale_factor=2), "conv_2d resize_nearest_neighbor"),
    Case("upsample by 17/12", lambda m, x: F.interpolate(m.conv(x), size=(17, 17)), "conv_2d resize_nearest_neighbor"),
    Case("average of padding", lambda m, x: F.avg_pool2d(m.conv(x), 3, 2, 1), "conv_2d pad depthwise_conv_2d"),
    Case(
        "average without padding",
        lambda m, x: F.avg_pool2d(m.conv(x), 3, 1, 1, count_include_pad=False),
        "conv_2d average_pool_2d",
    ),
    Case("average of default stride", lambda m, x: F.avg_pool2d(m.conv(x), 2), "conv_2d average_pool_2d"),
    Case("max of ceil mode", lambda m, x: F.max_pool2d(m.conv(x), 3, 2, ceil_mode=True), "conv_2d max_pool_2d"),
    Case("max of padding", lambda m, x: F.max_pool2d(m.conv(x), 3, 2, 1), "conv_2d padv2 max_pool_2d"),
    Case(
        "adaptive average",
        lambda m, x: F.adaptive_avg_pool2d(m.conv(x), (3, 4)),
        "conv_2d depthwise_conv_2d",
    ),
    Case("average of everything", lambda m, x: F.avg_pool2d(m.conv(x), 12), "conv_2d depthwise_conv_2d reshape"),
    Case("global average", lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 1), "conv_2d depthwise_conv_2d reshape"),
    Case("mean", lambda m, x: m.conv(x).mean((2, 3)), "conv_2d depthwise_conv_2d reshape"),
    Case("softmax over channels", lambda m, x: F.softmax(m.conv(x), 1), "conv_2d softmax"),
    Case("softmax over rows", lambda m, x: F.softmax(m.conv(x), 2), "conv_2d transpose softmax"),
    Case("batch norm alone", lambda m, x: m.norm(F.relu(m.conv(x))), "conv_2d depthwise_conv_2d"),
    Case(
        "batch norm beside another reader",
        lambda m, x: (lambda y: y + m.norm(y))(m.conv(x)),
        "conv_2d depthwise_conv_2d add",
    ),
    Case("linear of rank 4", lambda m, x: F.relu(m.linear(x)) * 2, "fully_connected lookup"),
    Case(
        "linear after flatten",
        lambda m, x: F.linear(m.conv(x).flatten(1), m.columns),
        "conv_2d reshape fully_connected",
    ),
    Case(
        "channel shuffle",
        lambda m, x: m.point(m.conv(x).view(1, 2, 4, 12, 12).transpose(1, 2).reshape(1, 8, 12, 12)),
        "conv_2d reshape transpose reshape conv_2d",
    ),
    Case("two inputs", lambda m, x, y: m.conv(x) + m.point(y), "conv_2d conv_2d add", (IMAGE, IMAGE)),
    Case("broadcast", lambda m, x, y: m.conv(x) * y, "conv_2d reshape mul", (IMAGE, (1, 8, 1, 1))),
    Case("two outputs", lambda m, x: (m.conv(x), m.conv(x).flatten(1)), "conv_2d conv_2d transpose reshape"),
    Case("one value twice", lambda m, x: (lambda y: (y, y.flatten(1)))(m.conv(x)), "conv_2d reshape"),
    Case("clamp alone", lambda m, x: F.relu6(x), "quantize"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operator(case: Case) -> None:
    check_case(case)


STAYS = (
    ("sorting", lambda m, x: torch.sort(m.conv(x))[0], "it puts values in order, for which there is no kernel"),
    (
        "indices",
        lambda m, x: F.max_pool2d(m.conv(x).repeat(1, 1, 4, 4), 2, return_indices=True)[1],
        "its indices are used; for them at most 524288 pairs of an element and a window are compared",
    ),
    ("view alone", lambda m, x: x.flatten(1), "nothing in its partition moves or computes a value"),
)


@pytest.mark.parametrize(("name", "function", "reason"), STAYS, ids=[row[0] for row in STAYS])
def test_what_stays_has_a_reason(name: str, function: Callable[..., Any], reason: str | None) -> None:
    small = compiled(function)
    assert small.program.delegation.on_cpu, f"{name} is delegated"
    if reason is not None:
        assert reason in [item.reason for item in small.program.delegation.on_cpu]
    assert_same_as_litert(small.program)
