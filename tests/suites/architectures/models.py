# SPDX-License-Identifier: BSD-3-Clause
"""The list of architectures, with their sources and example inputs.

Networks of images are timm's own, complete, at a resolution at which they take seconds. Transformers of language, audio
and time series are the classes of ``transformers`` with two layers and small widths: their operators are those of the
large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

SEED = 2026
SETTLING_BATCHES = 4
"""Random batches for batch normalizations in training mode, so that random weights give values of ordinary size."""

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Architecture:
    """make: the module; inputs: random example inputs for a seeded generator; settles: batch norms are adapted to
    random batches."""

    make: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], Inputs]
    settles: bool = False


def image(size: int) -> Callable[[torch.Generator], Inputs]:
    return lambda random: (torch.randn(1, 3, size, size, generator=random),)


def tokens(length: int, vocabulary: int = 100) -> Callable[[torch.Generator], Inputs]:
    return lambda random: (torch.randint(0, vocabulary, (1, length), generator=random),)


def values(*shape: int) -> Callable[[torch.Generator], Inputs]:
    return lambda random: (torch.randn(shape, generator=random),)


def timm_model(name: str, size: int = 96, **options: Any) -> Architecture:
    """Return a network of images from timm, with its own global pools and heads."""

    def make() -> nn.Module:
        from tests.suites.architectures import absent_torchvision

        absent_torchvision.install()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=100, **options)

    return Architecture(make, image(size), settles=True)


class First(nn.Module):
    """A model of transformers, reduced to the first tensor that it returns."""

    def __init__(self, model: nn.Module, argument: str, **fixed: Any) -> None:
        super().__init__()
        self.model = model
        self.argument = argument
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.argument: x}, **self.fixed, return_dict=False)[0]


def transformers_model(
    name: str,
    inputs: Callable[[torch.Generator], Inputs],
    argument: str = "input_ids",
    part: Callable[[nn.Module], nn.Module] | None = None,
    fixed: Mapping[str, Any] | None = None,
    **config: Any,
) -> Architecture:
    """Return a model class of transformers with a configuration of its own kind; ``part`` takes a piece of it."""

    def make() -> nn.Module:
        import transformers

        kind = getattr(transformers, name)
        model = kind(kind.config_class(**config, attn_implementation="sdpa"))
        return First(part(model) if part else model, argument, **(fixed or {}))

    return Architecture(make, inputs)


SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
"""The names of sizes that most language models share."""


def _yolov8n() -> nn.Module:
    from tests.architectures.yolov8 import YoloV8n

    return YoloV8n()


ARCHITECTURES: dict[str, Architecture] = {
    # Convolutional networks of images.
    "resnet18": timm_model("resnet18"),
    "resnet50": timm_model("resnet50"),
    "resnext50_32x4d": timm_model("resnext50_32x4d", 64),
    "seresnet18": timm_model("legacy_seresnet18"),
    "vgg11_bn": timm_model("vgg11_bn", 64),
    "mobilenetv2_100": timm_model("mobilenetv2_100"),
    "mobilenetv3_large_100": timm_model("mobilenetv3_large_100"),
    "mobilenetv4_conv_small": timm_model("mobilenetv4_conv_small"),
    "efficientnet_b0": timm_model("efficientnet_b0"),
    "efficientnet_lite0": timm_model("efficientnet_lite0"),
    "mnasnet_small": timm_model("mnasnet_small"),
    "ghostnet_100": timm_model("ghostnet_100", 64),
    "regnetx_002": timm_model("regnetx_002"),
    "regnety_002": timm_model("regnety_002"),
    "densenet121": timm_model("densenet121", 64),
    "dla34": timm_model("dla34", 64),
    "hrnet_w18_small": timm_model("hrnet_w18_small", 64),
    "repvgg_a0": timm_model("repvgg_a0", 64),
    "mobileone_s0": timm_model("mobileone_s0", 64),
    "inception_v3": timm_model("inception_v3", 107, aux_logits=False),
    "xception41": timm_model("xception41", 64),
    "cspresnet50": timm_model("cspresnet50", 64),
    "convnext_atto": timm_model("convnext_atto", 64),
    "convnextv2_atto": timm_model("convnextv2_atto", 64),
    "yolov8n": Architecture(_yolov8n, image(64), settles=True),
    # Networks of images with attention or mixing.
    "vit_tiny_patch16": timm_model("vit_tiny_patch16_224", 64, img_size=64),
    "swin_tiny": timm_model("swin_tiny_patch4_window7_224", 56, img_size=56, window_size=7, depths=(1, 1, 1, 1)),
    "mobilevit_xxs": timm_model("mobilevit_xxs", 64),
    "edgenext_xx_small": timm_model("edgenext_xx_small", 64),
    "efficientformer_l1": timm_model("efficientformer_l1", 224),
    "levit_128s": timm_model("levit_128s", 224),
    "poolformer_s12": timm_model("poolformer_s12", 64),
    "resmlp_12": timm_model("resmlp_12_224", 224),
    # Language.
    "bert": transformers_model("BertModel", tokens(32), **SMALL),
    "distilbert": transformers_model(
        "DistilBertModel", tokens(32), dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=100
    ),
    "gpt2": transformers_model(
        "GPT2Model", tokens(32), fixed={"use_cache": False}, n_embd=64, n_layer=2, n_head=4, vocab_size=100
    ),
    "llama": transformers_model("LlamaModel", tokens(32), fixed={"use_cache": False}, num_key_value_heads=2, **SMALL),
    "qwen2": transformers_model("Qwen2Model", tokens(32), fixed={"use_cache": False}, num_key_value_heads=2, **SMALL),
    # Audio, time series, segmentation.
    "wav2vec2": transformers_model(
        "Wav2Vec2Model", values(1, 4000), "input_values", **{**SMALL, "vocab_size": 32}, conv_dim=(32,) * 7
    ),
    "conformer": transformers_model(
        "Wav2Vec2ConformerModel",
        values(1, 4000),
        "input_values",
        **{**SMALL, "vocab_size": 32},
        conv_dim=(32,) * 7,
        conv_depthwise_kernel_size=15,
    ),
    "whisper_encoder": transformers_model(
        "WhisperModel",
        values(1, 16, 64),
        "input_features",
        lambda model: model.encoder,
        d_model=64,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_layers=1,
        decoder_attention_heads=4,
        vocab_size=100,
        num_mel_bins=16,
        max_source_positions=32,
        pad_token_id=0,
    ),
    "patchtst": transformers_model(
        "PatchTSTForPrediction",
        values(1, 96, 4),
        "past_values",
        num_input_channels=4,
        context_length=96,
        patch_length=16,
        patch_stride=16,
        d_model=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        prediction_length=24,
    ),
    "segformer_b0": transformers_model("SegformerForSemanticSegmentation", image(64), "pixel_values", num_labels=10),
}


def get(name: str) -> tuple[nn.Module, list[Inputs]]:
    """Return the module of an architecture in eval mode, with seeded random weights, and five random inputs."""
    row = ARCHITECTURES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        random = torch.Generator().manual_seed(SEED)
        model = row.make()
        _fill_zeros(model)
        if row.settles:
            _settle(model, [torch.cat([row.inputs(random)[0] for _ in range(4)]) for _ in range(SETTLING_BATCHES)])
        return model.eval(), [row.inputs(random) for _ in range(5)]


def _fill_zeros(model: nn.Module) -> None:
    """Give small random weights to matrices that start as zeros, such as the heads of some models."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and not parameter.any():
                parameter.normal_(std=0.02)


def _settle(model: nn.Module, batches: list[Tensor]) -> None:
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.train()
        norm.momentum = None  # a plain average over all batches
        norm.reset_running_stats()
    with torch.no_grad():
        for batch in batches:
            model(batch)
