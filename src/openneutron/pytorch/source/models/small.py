# SPDX-License-Identifier: BSD-3-Clause
"""Small networks: MLPerf Tiny's, CifarNet, and one each with causal and transposed convolutions and with attention."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class Autoencoder(nn.Module):
    """MLPerf Tiny's anomaly detection (mlcommons/tiny, benchmark/training/anomaly_detection): linear layers with batch
    norm and ReLU, a bottleneck of 8. Input and output [N, 640]."""

    def __init__(self, inputs: int = 640) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = inputs
        for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
            layers += [nn.Linear(width, outputs), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]
            width = outputs
        self.layers = nn.Sequential(*layers, nn.Linear(width, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class CifarNet(nn.Module):
    """The network of NXP's published i.MX RT700 latencies, 12.3 million multiply-accumulates: three 5x5 convolutions
    with 2x2 max pools, one linear layer, softmax. Input [N, 3, 32, 32], output [N, classes]."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(64 * 4 * 4, classes)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.pool(self.relu(self.conv3(x)))
        return self.softmax(self.fc(x.flatten(1)))


def separable(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, channels, 1),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )


class DSCNN(nn.Module):
    """DS-CNN (Zhang et al., arXiv 1711.07128), MLPerf Tiny's keyword spotting. Input [N, 1, 49, 10] (cepstra over
    time), output [N, classes]."""

    def __init__(self, classes: int = 12, channels: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.ZeroPad2d((1, 1, 4, 5)),
            nn.Conv2d(1, channels, (10, 4), stride=2),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
        )
        self.blocks = nn.Sequential(*(separable(channels) for _ in range(blocks)))
        self.dropout = nn.Dropout(0.4)
        self.pool = nn.AvgPool2d((25, 5))
        self.fc = nn.Linear(channels, classes)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.dropout(self.blocks(self.stem(x))))
        return self.softmax(self.fc(x.flatten(1)))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside the identity, or beside a strided 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Conv2d(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + identity)


class ResNet8(nn.Module):
    """MLPerf Tiny's image classification (mlcommons/tiny, benchmark/training/image_classification). Input [N, 3, 32,
    32], output [N, classes]."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = BasicBlock(16, 16, 1)
        self.layer2 = BasicBlock(16, 32, 2)
        self.layer3 = BasicBlock(32, 64, 2)
        self.pool = nn.AvgPool2d(8)
        self.fc = nn.Linear(64, classes)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.softmax(self.fc(self.pool(x).flatten(1)))


class CausalConv1d(nn.Conv1d):
    """A dilated convolution whose output at one time reads nothing later."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(nn.functional.pad(x, (before, 0)))


class RingConv1d(nn.Conv1d):
    """A causal convolution of a stream of frames, which keeps the last frames that it reads again in a buffer."""

    ring: torch.Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self.register_buffer("ring", torch.zeros(1, inputs, (kernel - 1) * dilation))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = torch.cat([self.ring, x], 2)
        self.ring.copy_(frames[:, :, -self.ring.shape[2] :])
        return super().forward(frames)


class TemporalBlock(nn.Module):
    """Two causal convolutions of one dilation beside the identity, or beside a convolution of one point."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        dilation: int,
        convolution: type[CausalConv1d] | type[RingConv1d],
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            convolution(inputs, outputs, kernel, dilation=dilation),
            nn.BatchNorm1d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
            convolution(outputs, outputs, kernel, dilation=dilation),
            nn.BatchNorm1d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
        )
        self.downsample = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        return torch.relu(self.layers(x) + identity)


class TCN(nn.Module):
    """A temporal convolutional network (Bai et al., arXiv 1803.01271), with batch instead of weight normalization.
    Input [N, inputs, time], output [N, classes, time]. ``streaming``: N is 1, and a call continues the call before."""

    def __init__(
        self, inputs: int = 8, classes: int = 10, channels: int = 24, blocks: int = 4, streaming: bool = False
    ) -> None:
        super().__init__()
        convolution = RingConv1d if streaming else CausalConv1d
        widths = [inputs, *(channels for _ in range(blocks))]
        self.blocks = nn.Sequential(
            *(TemporalBlock(widths[level], widths[level + 1], 3, 1 << level, convolution) for level in range(blocks))
        )
        self.head = nn.Conv1d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def two_convolutions(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """U-Net (Ronneberger et al., arXiv 1505.04597), with padded convolutions and batch normalization. Input [N, 3, H,
    W] with H and W multiples of 2 ** (levels - 1), output [N, classes, H, W]."""

    def __init__(self, classes: int = 4, channels: int = 8, levels: int = 3) -> None:
        super().__init__()
        widths = [channels << level for level in range(levels)]
        self.down = nn.ModuleList(
            two_convolutions(inputs, outputs) for inputs, outputs in zip([3, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, 2) for narrow, wide in itertools.pairwise(widths))
        self.join = nn.ModuleList(two_convolutions(2 * width, width) for width in widths[:-1])
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed = []
        for layer in self.down[:-1]:
            passed.append(layer(x))
            x = self.pool(passed[-1])
        x = self.down[-1](x)
        for level in range(len(passed) - 1, -1, -1):
            x = self.join[level](torch.cat([passed[level], self.up[level](x)], 1))
        return self.head(x)


class SpeechEnhancement(nn.Module):
    """A U-Net of convolutions on a wave (in the manner of Tagliasacchi et al., arXiv 2009.02095): an encoder whose layers
    shorten the wave by 4, two convolutions in its middle, and a decoder of transposed convolutions, each added to what the encoder
    has of its length. Input and output [N, 1, time], time a multiple of 64."""

    def __init__(self, channels: int = 16, levels: int = 3) -> None:
        super().__init__()
        widths = [1, *(channels << level for level in range(levels))]
        pairs = list(itertools.pairwise(widths))
        self.encoder = nn.ModuleList(nn.Conv1d(narrow, wide, 8, 4, 2) for narrow, wide in pairs)
        self.middle = nn.ModuleList(nn.Conv1d(widths[-1], widths[-1], 3, padding=1) for _ in range(2))
        self.decoder = nn.ModuleList(nn.ConvTranspose1d(wide, narrow, 8, 4, 2) for narrow, wide in reversed(pairs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed = [x]
        for layer in self.encoder:
            passed.append(torch.relu(layer(passed[-1])))
        y = passed.pop()
        for layer in self.middle:
            y = torch.relu(layer(y))
        for layer in self.decoder[:-1]:
            y = torch.relu(layer(y) + passed.pop())
        return self.decoder[-1](y) + passed.pop()


def transformer_encoder() -> nn.TransformerEncoderLayer:
    """An encoder block of a transformer (Vaswani et al., arXiv 1706.03762). Input and output [N, 32, 64]: self-
    attention of 4 heads and two linear layers with ReLU, each added and normalized."""
    return nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
