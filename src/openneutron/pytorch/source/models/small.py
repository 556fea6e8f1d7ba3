# SPDX-License-Identifier: BSD-3-Clause
"""Define small networks: MLPerf Tiny's, CifarNet, MobileNets, recurrent, convolutional and attention networks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import nn


class KeywordSpotter(nn.Module):
    """A recurrent layer, and a linear layer on its last output (the LSTM and the GRU of Zhang et al., arXiv 1711.07128).

    Input [N, time, features], output [N, classes].
    """

    def __init__(
        self, layer: type[nn.LSTM] | type[nn.GRU], features: int = 40, units: int = 64, classes: int = 12
    ) -> None:
        super().__init__()
        self.layer = layer(features, units, batch_first=True)
        self.fc = nn.Linear(units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.layer(x)
        return self.fc(outputs[:, -1])


class StreamingKeywordSpotter(KeywordSpotter):
    """The keyword spotter with an LSTM for a stream of frames. The hidden state and the cell state are buffers.

    Input [1, frames, features], output [1, frames, classes].
    """

    hidden: torch.Tensor
    cell: torch.Tensor

    def __init__(self, features: int = 40, units: int = 64, classes: int = 12) -> None:
        super().__init__(nn.LSTM, features, units, classes)
        self.register_buffer("hidden", torch.zeros(1, 1, units))
        self.register_buffer("cell", torch.zeros(1, 1, units))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, (hidden, cell) = self.layer(x, (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return self.fc(outputs)


class NoiseSuppressor(nn.Module):
    """A noise suppressor in the manner of RNNoise (Valin, arXiv 1709.08243).

    Three GRUs, whose states are buffers, compute the gains of the bands and the probability of a voice from the features of a frame.
    Input [1, frames, features], outputs [1, frames, bands] and [1, frames, 1].
    """

    voice_state: torch.Tensor
    noise_state: torch.Tensor
    gain_state: torch.Tensor

    def __init__(self, features: int = 42, bands: int = 22) -> None:
        super().__init__()
        self.features = nn.Linear(features, 24)
        self.voice = nn.GRU(24, 24, batch_first=True)
        self.noise = nn.GRU(24 + 24 + features, 48, batch_first=True)
        self.gain = nn.GRU(24 + 48 + features, 96, batch_first=True)
        self.is_voice = nn.Linear(24, 1)
        self.gains = nn.Linear(96, bands)
        for name, layer in (("voice", self.voice), ("noise", self.noise), ("gain", self.gain)):
            self.register_buffer(f"{name}_state", torch.zeros(1, 1, layer.hidden_size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dense = torch.tanh(self.features(x))
        voice, state = self.voice(dense, self.voice_state)
        self.voice_state.copy_(state)
        noise, state = self.noise(torch.cat([dense, voice, x], 2), self.noise_state)
        self.noise_state.copy_(state)
        gain, state = self.gain(torch.cat([voice, noise, x], 2), self.gain_state)
        self.gain_state.copy_(state)
        return torch.sigmoid(self.gains(gain)), torch.sigmoid(self.is_voice(voice))


class Svdf(nn.Sequential):
    """A layer of filters of low rank (Nakkiran et al., "Compressing deep neural networks using a rank-constrained
    topology", Interspeech 2015).

    Each unit has ``rank`` filters, which map the inputs of a frame to one number each. The unit's output is a
    weighted sum of these numbers for the last ``memory`` frames, followed by a ReLU. Input [N, inputs, frames],
    output [N, units, frames]. With ``streaming``, N is 1, and a call continues the stream of the last call.
    """

    def __init__(self, inputs: int, units: int, memory: int, rank: int, streaming: bool) -> None:
        convolution = RingConv1d if streaming else CausalConv1d
        features = nn.Conv1d(inputs, units * rank, 1, bias=False)
        super().__init__(features, convolution(units * rank, units, memory, groups=units), nn.ReLU())


class WakeWord(nn.Module):
    """A detector of wake words in a stream of frames, made of SVDF layers.

    Input [N, features, frames], output [N, classes, frames]. For ``streaming`` see ``Svdf``.
    """

    def __init__(
        self,
        features: int = 40,
        units: int = 32,
        memory: int = 10,
        layers: int = 3,
        classes: int = 4,
        streaming: bool = True,
    ) -> None:
        super().__init__()
        widths = [features, *(units for _ in range(layers))]
        self.layers = nn.Sequential(*(Svdf(*pair, memory, 2, streaming) for pair in itertools.pairwise(widths)))
        self.head = nn.Conv1d(units, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


class CRNN(nn.Module):
    """A small recognizer of lines of text (Shi et al., arXiv 1507.05717).

    Convolutions and pools reduce the image to one row. A bidirectional LSTM runs along the row, and a linear layer follows at each step.
    Input [N, 1, 32, width], output [N, width / 4, classes].
    """

    def __init__(self, classes: int = 37, units: int = 48) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for outputs, pool in ((16, (2, 2)), (32, (2, 2)), (64, (2, 1)), (64, (4, 1))):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            layers += [nn.ReLU(inplace=True), nn.MaxPool2d(pool)]
            inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.lstm = nn.LSTM(inputs, units, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * units, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = self.layers(x).squeeze(2).transpose(1, 2)
        return self.fc(self.lstm(steps)[0])


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Return a convolution, its batch norm, and the activation if there is one."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    return nn.Sequential(*layers, *([] if activation is None else [activation(inplace=True)]))


BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""The output channels (at width 1) and the stride of each separable convolution of MobileNetV1: table 1 of the paper."""


class MobileNetV1(nn.Module):
    """MobileNetV1 (Howard et al., arXiv 1704.04861). Input [N, 3, H, W], output [N, classes].

    With ``softmax``, the outputs are probabilities, as in MLPerf Tiny's visual wake words network, which has width
    0.25 and two classes (mlcommons/tiny, benchmark/training/visual_wake_words).
    """

    def __init__(self, classes: int = 1000, width: float = 1.0, softmax: bool = False) -> None:
        super().__init__()
        channels = int(32 * width)
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1, nn.ReLU)]
        for block_channels, stride in BLOCKS:
            outputs = int(block_channels * width)
            layers.append(conv_norm(channels, channels, 3, stride, channels, nn.ReLU))
            layers.append(conv_norm(channels, outputs, 1, 1, 1, nn.ReLU))
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)
        self.softmax = nn.Softmax(dim=1) if softmax else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.features(x))
        return self.softmax(self.classifier(x.flatten(1)))


STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""The expansion, channels, number of blocks and first stride of each stage of MobileNetV2: table 2 of the paper."""


def channels_of(channels: float) -> int:
    """Return ``channels`` rounded to the nearest multiple of 8, but at least 8. If that is less than 0.9 * channels,
    return the next larger multiple of 8.

    This is the rule of the reference implementation.
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class InvertedResidual(nn.Module):
    """A block of MobileNetV2: expansion, depthwise convolution and projection, added to the input where the shapes are equal."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.use_res_connect = stride == 1 and inputs == outputs
        layers: list[nn.Module] = [conv_norm(inputs, hidden, 1, 1, 1, nn.ReLU6)] if expansion != 1 else []
        layers += [
            conv_norm(hidden, hidden, 3, stride, hidden, nn.ReLU6),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 (Sandler et al., arXiv 1801.04381). Input [N, 3, H, W], output [N, classes]."""

    def __init__(self, classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        channels = channels_of(32 * width)
        last = channels_of(1280 * max(1.0, width))
        features: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1, nn.ReLU6)]
        for expansion, stage_channels, blocks, first_stride in STAGES:
            outputs = channels_of(stage_channels * width)
            for block in range(blocks):
                features.append(InvertedResidual(channels, outputs, first_stride if block == 0 else 1, expansion))
                channels = outputs
        features.append(conv_norm(channels, last, 1, 1, 1, nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


@dataclass(frozen=True, slots=True)
class Block:
    """A row of table 2 of the MobileNetV3 paper. ``swish`` is True for hard swish and False for ReLU."""

    kernel: int
    expanded: int
    channels: int
    excites: bool
    swish: bool
    stride: int


STEM = 16
V3_BLOCKS = (
    Block(3, 16, 16, True, False, 2),
    Block(3, 72, 24, False, False, 2),
    Block(3, 88, 24, False, False, 1),
    Block(5, 96, 40, True, True, 2),
    Block(5, 240, 40, True, True, 1),
    Block(5, 240, 40, True, True, 1),
    Block(5, 120, 48, True, True, 1),
    Block(5, 144, 48, True, True, 1),
    Block(5, 288, 96, True, True, 2),
    Block(5, 576, 96, True, True, 1),
    Block(5, 576, 96, True, True, 1),
)
LAST, WIDE = 576, 1024
EPS = 0.001
"""The epsilon of the batch norms of MobileNetV3."""


class SqueezeExcitation(nn.Module):
    """Multiplies each channel by a factor in [0, 1] that two layers compute from the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        return self.scale_activation(scale) * x


class ExcitedResidual(nn.Module):
    """A block of MobileNetV3: expansion, depthwise convolution, squeeze-and-excite (if ``row`` asks for it), and
    projection.

    The result is added to the input where the shapes are equal.
    """

    def __init__(self, inputs: int, row: Block) -> None:
        super().__init__()
        self.use_res_connect = row.stride == 1 and inputs == row.channels
        activation: type[nn.Module] = nn.Hardswish if row.swish else nn.ReLU
        layers: list[nn.Module] = []
        if row.expanded != inputs:
            layers.append(conv_norm(inputs, row.expanded, 1, 1, 1, activation, EPS))
        layers.append(conv_norm(row.expanded, row.expanded, row.kernel, row.stride, row.expanded, activation, EPS))
        if row.excites:
            layers.append(SqueezeExcitation(row.expanded, channels_of(row.expanded // 4)))
        layers.append(conv_norm(row.expanded, row.channels, 1, eps=EPS))
        self.block = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    """MobileNetV3-Small (Howard et al., arXiv 1905.02244). Input [N, 3, H, W], output [N, classes]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        features: list[nn.Module] = [conv_norm(3, STEM, 3, 2, 1, nn.Hardswish, EPS)]
        channels = STEM
        for row in V3_BLOCKS:
            features.append(ExcitedResidual(channels, row))
            channels = row.channels
        features.append(conv_norm(channels, LAST, 1, 1, 1, nn.Hardswish, EPS))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(LAST, WIDE), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(WIDE, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Autoencoder(nn.Module):
    """MLPerf Tiny's anomaly detection (mlcommons/tiny, benchmark/training/anomaly_detection): linear layers with batch
    norm and ReLU, and a bottleneck of 8 values. Input and output [N, 640]."""

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
    """Two 3x3 convolutions, added to the input, or to a 1x1 convolution of the input where the shapes differ."""

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
    """A dilated convolution whose output at a time depends only on inputs up to that time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(nn.functional.pad(x, (before, 0)))


class RingConv1d(nn.Conv1d):
    """A causal convolution of a stream of frames. A buffer keeps the last frames, which the next call reads again."""

    ring: torch.Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, dilation=dilation, groups=groups)
        self.register_buffer("ring", torch.zeros(1, inputs, (kernel - 1) * dilation))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = torch.cat([self.ring, x], 2)
        self.ring.copy_(frames[:, :, -self.ring.shape[2] :])
        return super().forward(frames)


class TemporalBlock(nn.Module):
    """Two causal convolutions of one dilation, added to the input, or to a 1x1 convolution of it where the widths differ."""

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

    Input [N, inputs, time], output [N, classes, time]. With ``streaming``, N is 1, and a call continues the stream of the last call.
    """

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
    """A U-Net of 1d convolutions on the samples of a sound (in the manner of Tagliasacchi et al., arXiv 2009.02095).

    Each layer of the encoder shortens its input by a factor of 4. Two convolutions follow, and then the transposed
    convolutions of the decoder. The result of each transposed convolution is added to the encoder's features of the
    same length. The result of the last one is added to the model's input. Input and output [N, 1, time]; time is a
    multiple of 64.
    """

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
    """Return an encoder block of a transformer (Vaswani et al., arXiv 1706.03762). Input and output [N, 32, 64].

    The block has self-attention of 4 heads, and two linear layers with ReLU. Each part is added to its input and normalized.
    """
    return nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
