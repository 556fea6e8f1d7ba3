# SPDX-License-Identifier: BSD-3-Clause
"""The built-in networks, with seeded random weights.

Parameter names are torchvision's where torchvision has the network, so that its checkpoints can be loaded.

The random weights and inputs let a deep network behave somewhat like a trained one. Networks of purely random weights are chaotic:
each layer enlarges the difference between two inputs (Poole et al., arXiv 1606.05340), and a rounding error too. After about twenty
layers the error is as large as the signal. Trained filters resemble each other and images are smooth, so that signals add up and
rounding errors average out. So the random weights have a mean here (``COHERENCE``), and the random images are smooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from openneutron.errors import InvalidModelError
from openneutron.pytorch.source.models.small import (
    CRNN,
    DSCNN,
    TCN,
    Autoencoder,
    CifarNet,
    KeywordSpotter,
    MobileNetV1,
    MobileNetV2,
    MobileNetV3,
    NoiseSuppressor,
    ResNet8,
    SpeechEnhancement,
    StreamingKeywordSpotter,
    UNet,
    WakeWord,
    transformer_encoder,
)

TOKENS, POSITIONS = 96, 96
"""The number of characters (the printable ones of ASCII and the end of a line), and the length of the longest text."""

EMBEDDING_SPREAD = 0.02
"""The standard deviation of the initial weights of embeddings, as in GPT-2."""


class DecoderBlock(nn.Module):
    """Causal self-attention, and two linear layers with GELU, in the order of Radford et al., GPT-2, 2019.

    A layer norm precedes each of the two parts, and the result of a part is added to its input. The keys and values of all positions
    are buffers [1, heads, positions, width / heads].
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, positions, width // heads), persistent=False)

    def forward(self, x: torch.Tensor, position: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return the block's features [1, 1, width] of one position, and store its key and value.

        ``x`` is [1, 1, width], ``position`` is int64 [1]. ``visible`` is bool [1, 1, 1, positions]: True up to ``position``.
        """
        query, key, value = self._projected(x)
        self.keys[:, :, position] = key
        self.values[:, :, position] = value
        attended = functional.scaled_dot_product_attention(query, self.keys, self.values, visible)
        return self._behind(x, attended)

    def at_once(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's features of all positions of texts, [N, positions, width] like ``x``. The buffers do not change."""
        query, key, value = self._projected(x)
        return self._behind(x, functional.scaled_dot_product_attention(query, key, value, is_causal=True))

    def _projected(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = self.qkv(self.attention_norm(x)).chunk(3, -1)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]

    def _behind(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))


class TextDecoder(nn.Module):
    """A decoder-only transformer with a key/value cache (Vaswani et al., arXiv 1706.03762; learned positions).

    A run reads one token and its position, both int64 [1], and returns the logits [1, tokens] of the next token. A
    text begins at position 0. The values of the buffers after the current position have no effect. A position beyond
    the last one is an error.
    """

    visible: torch.Tensor

    def __init__(
        self, tokens: int = TOKENS, width: int = 64, heads: int = 4, blocks: int = 2, positions: int = POSITIONS
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, positions) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, tokens)
        # Row p marks the positions up to p.
        self.register_buffer(
            "visible", torch.ones(positions, positions, dtype=torch.bool).tril()[:, None, None], persistent=False
        )
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
                nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Embedding):
                nn.init.normal_(layer.weight, std=EMBEDDING_SPREAD)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = (self.tokens(token) + self.positions(position)).unsqueeze(1)
        visible = self.visible[position]
        for block in self.blocks:
            x = block(x, position, visible)
        return self.logits(self.norm(x)).squeeze(1)

    def at_once(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, length, tokens] of the token after each token of texts, int64 [N, length], for training."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block.at_once(x)
        return self.logits(self.norm(x))


def random_text(count: int, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
    """Return the inputs of ``count`` consecutive runs on random tokens: a token and its position, both int64 [1].

    The position begins again at 0 after ``POSITIONS`` tokens.
    """
    tokens = torch.randint(TOKENS, (count,), generator=generator)
    return [(token, torch.tensor([place % POSITIONS])) for place, token in enumerate(tokens.split(1))]


COHERENCE = 0.5
"""The mean of a convolution's weights, as a multiple of their standard deviation."""

RESULT_SPREAD = 0.015
"""The standard deviation of a classifier's results after a softmax: about 4 of its 256 int8 steps.

A softmax with a probability near 1 on random inputs would enlarge every difference in the layers before it.
"""

SETTLING_VALUES = 2**18
"""The number of input values from which the statistics of batch norms come, in at least 8 and at most 64 inputs."""

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)
_DRAWN = (nn.Conv1d, nn.Conv2d, *_TRANSPOSED, nn.Linear)


def random_inputs(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return random inputs: for rank 4 images that are smooth over about 8 pixels with a little noise, else plain noise."""
    noise = torch.randn(shape, generator=generator)
    if len(shape) != 4:
        return noise
    coarse = torch.randn((*shape[:2], max(2, shape[2] // 8), max(2, shape[3] // 8)), generator=generator)
    return nn.functional.interpolate(coarse, size=shape[2:], mode="bilinear") + 0.3 * noise


def settle(model: nn.Module, shape: tuple[int, ...], generator: torch.Generator, frames: int | None = None) -> None:
    """Draw the weights of a model, and set its batch norms and the last layer of a classifier. Leave it in eval mode.

    The spread of the weights is that of He et al., arXiv 1502.01852, and the weights of convolutions also have a mean
    (``COHERENCE``). Only convolutions and linear layers are drawn. Each batch norm gets the statistics of random
    inputs of ``shape``. If the last linear layer returns a matrix, the model is a classifier: this layer is scaled
    and shifted so that a softmax of its results has nearly even probabilities. ``frames``: see ``BuiltIn``.
    """
    count = max(8, min(64, SETTLING_VALUES // math.prod(shape[1:])))
    inputs = random_inputs((count, *shape[1:]), generator)
    if frames is not None:
        inputs = torch.cat(inputs.split(1), frames)
    norms = [layer for layer in model.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]
    linears = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    for layer in model.modules():
        if isinstance(layer, _DRAWN):
            _draw(layer, generator)
    for norm in norms:
        # Most results are above 0, so that a ReLU does not change them.
        nn.init.uniform_(norm.weight, 0.5, 1.0, generator)
        nn.init.normal_(norm.bias, 1.0, 0.2, generator)
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    with torch.no_grad():
        model(inputs)
        for norm in norms:
            norm.momentum = 0.1
        model.eval()
        if not linears:
            return
        results: list[torch.Tensor] = []
        handle = linears[-1].register_forward_hook(lambda layer, args, result: results.append(result))
        model(inputs)
        handle.remove()
        if results[0].dim() != 2:
            return  # the model is no classifier
        centre = results[0].mean(0)
        even = 1 / linears[-1].out_features
        spread = (results[0] - centre).std() * even * (1 - even) / RESULT_SPREAD
        linears[-1].weight.div_(spread)
        linears[-1].bias.sub_(centre).div_(spread)


def _forget(model: nn.Module) -> None:
    """Set the states of a model to 0. States are the buffers that are not those of a batch norm."""
    for layer in model.modules():
        if not isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            for state in layer.buffers(recurse=False):
                state.zero_()


def _draw(layer: nn.Module, generator: torch.Generator) -> None:
    assert isinstance(layer, _DRAWN)
    if isinstance(layer, _TRANSPOSED):
        # An output of a strided transposed convolution reads only the taps of its phase.
        taps = math.prod(layer.kernel_size) / math.prod(layer.stride)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / (layer.in_channels * taps)), generator=generator)
    else:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
    if not isinstance(layer, nn.Linear):
        with torch.no_grad():
            layer.weight.add_(COHERENCE * float(layer.weight.std()))
    if layer.bias is not None:
        nn.init.normal_(layer.bias, std=0.1, generator=generator)


def level(model: nn.Module, shape: tuple[int, ...], generator: torch.Generator) -> None:
    """Divide the weights and the bias of each convolution and linear layer by the standard deviation of the layer's
    results on random inputs of ``shape``.

    This is the method of Mishkin and Matas, arXiv 1511.06422, for networks without normalizations.
    """

    def divide(layer: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        spread = result.std()
        layer.weight.div_(spread)
        layer.bias.div_(spread)
        return result / spread

    handles = [layer.register_forward_hook(divide) for layer in model.modules() if isinstance(layer, _DRAWN)]
    with torch.no_grad():
        model(random_inputs((8, *shape[1:]), generator))
    for handle in handles:
        handle.remove()


def round_weights(model: nn.Module) -> None:
    """Round the weights of each output channel to multiples of 1/127 of the channel's largest magnitude.

    Quantization of the weights to int8 then loses nothing, as after training with such weights.
    """
    for layer in model.modules():
        if isinstance(layer, _DRAWN):
            outputs = 1 if isinstance(layer, _TRANSPOSED) else 0
            others = [axis for axis in range(layer.weight.dim()) if axis != outputs]
            with torch.no_grad():
                step = layer.weight.abs().amax(others, keepdim=True) / 127
                layer.weight.copy_(torch.round(layer.weight / step) * step)


SEED = 2025
"""The seed of weights and example inputs. The number itself has no meaning."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in network: ``make`` returns it, and ``input_shape`` is the shape of its first input (batch 1, images NCHW).

    ``of_8_bits`` applies ``level`` and ``round_weights``. ``frames`` is set for networks with a state: the axis of the input along which
    one call may have several frames. ``draw`` is set for networks whose inputs are not floats: it returns a number of consecutive
    inputs. Such a network keeps its initial weights.
    """

    make: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    title: str
    of_8_bits: bool = False
    frames: int | None = None
    draw: Callable[[int, torch.Generator], list[tuple[torch.Tensor, ...]]] | None = None


_MODELS = {
    "autoencoder": BuiltIn(Autoencoder, (1, 640), "MLPerf Tiny anomaly detection, fully connected"),
    "cifarnet": BuiltIn(CifarNet, (1, 3, 32, 32), "CifarNet: three 5x5 convolutions, 32x32"),
    "crnn": BuiltIn(CRNN, (1, 1, 32, 64), "text recognition: convolutions and a bidirectional LSTM, 32x64"),
    "ds_cnn": BuiltIn(DSCNN, (1, 1, 49, 10), "MLPerf Tiny keyword spotting, DS-CNN"),
    "gru_kws": BuiltIn(partial(KeywordSpotter, nn.GRU), (1, 49, 40), "keyword spotting, GRU of 64 units"),
    "lstm_kws": BuiltIn(partial(KeywordSpotter, nn.LSTM), (1, 49, 40), "keyword spotting, LSTM of 64 units"),
    "mobilenet_v1": BuiltIn(MobileNetV1, (1, 3, 224, 224), "MobileNetV1 1.0, 224x224"),
    "mobilenet_v2": BuiltIn(MobileNetV2, (1, 3, 224, 224), "MobileNetV2 1.0, 224x224"),
    "mobilenet_v3_small": BuiltIn(MobileNetV3, (1, 3, 96, 96), "MobileNetV3-Small, 96x96"),
    "noise_suppression": BuiltIn(
        NoiseSuppressor, (1, 1, 42), "noise suppression frame by frame: three GRUs with states, as RNNoise", frames=1
    ),
    "resnet8": BuiltIn(ResNet8, (1, 3, 32, 32), "MLPerf Tiny image classification, ResNet-8"),
    "speech_enhancement": BuiltIn(
        SpeechEnhancement, (1, 1, 1024), "speech enhancement: a U-Net of 1d convolutions, for int16 activations", True
    ),
    "streaming_lstm_kws": BuiltIn(
        StreamingKeywordSpotter, (1, 1, 40), "lstm_kws frame by frame, with its states in the program", frames=1
    ),
    "streaming_tcn": BuiltIn(
        partial(TCN, streaming=True), (1, 8, 1), "tcn frame by frame, with rings of the last frames", frames=2
    ),
    "tcn": BuiltIn(TCN, (1, 8, 64), "temporal convolutional network: dilated causal convolutions"),
    "text_decoder": BuiltIn(
        TextDecoder, (1,), "text by characters: a transformer of two blocks with a key/value cache", draw=random_text
    ),
    "unet": BuiltIn(UNet, (1, 3, 32, 32), "U-Net of three levels: transposed convolutions, 32x32"),
    "transformer_encoder": BuiltIn(
        transformer_encoder, (1, 32, 64), "Transformer encoder block: 64 wide, 4 heads, 32 tokens"
    ),
    "vww": BuiltIn(
        partial(MobileNetV1, 2, 0.25, True), (1, 3, 96, 96), "MLPerf Tiny visual wake words, MobileNetV1 0.25, 96x96"
    ),
    "wake_word": BuiltIn(
        WakeWord, (1, 40, 1), "wake words frame by frame: three SVDF layers, rank 2, that remember 10 frames", frames=2
    ),
}


def names() -> list[str]:
    """Return the built-in models' names."""
    return list(_MODELS)


def describe(name: str) -> BuiltIn:
    """Return the row of a built-in model. Raises InvalidModelError for an unknown name."""
    if name not in _MODELS:
        raise InvalidModelError(f"there is no built-in model '{name}'; there are {', '.join(_MODELS)}.")
    return _MODELS[name]


def get(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the built-in model ``name`` in eval mode with seeded random weights (see ``settle``), and its example inputs.

    The inputs have batch 1 and are float32, or int64 for tokens and positions. Raises InvalidModelError for an unknown name.
    """
    row = describe(name)
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        # ``settle`` runs the model in training mode, where dropouts draw from the global generator.
        torch.manual_seed(SEED)
        model = row.make()
        if row.draw is not None:
            return model.eval(), row.draw(1, generator)[0]
        settle(model, row.input_shape, generator, row.frames)
        _forget(model)
        if row.of_8_bits:
            level(model, row.input_shape, generator)
            round_weights(model)
    return model, (random_inputs(row.input_shape, generator),)


def samples(name: str, count: int, seed: int = SEED + 1) -> list[tuple[torch.Tensor, ...]]:
    """Return ``count`` seeded random inputs of a built-in model, for calibration or comparison."""
    generator, row = torch.Generator().manual_seed(seed), describe(name)
    if row.draw is not None:
        return row.draw(count, generator)
    return [(random_inputs(row.input_shape, generator),) for _ in range(count)]
