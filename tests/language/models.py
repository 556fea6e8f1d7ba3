# SPDX-License-Identifier: BSD-3-Clause
"""Tiny causal language models of transformers, one or more for each family."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from openneutron.language.decoder import Decoder
from openneutron.language.quantization import dequantized, quantize
from openneutron.language.repair import logits as logits_in_floats

WIDE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = {**WIDE, "head_dim": 24, "hidden_size": 96, "intermediate_size": 64}
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **WIDE},
    "llama tied, with biases": {"model_type": "llama", **WIDE, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    "llama 3": {"model_type": "llama", **HEADS, "rope_parameters": LLAMA_3},
    "llama linear": {"model_type": "llama", **WIDE, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    "mistral": {"model_type": "mistral", **WIDE, "sliding_window": 5},
    "qwen2": {"model_type": "qwen2", **WIDE, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {"model_type": "qwen3", **HEADS, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", **HEADS},
    "gemma2": {"model_type": "gemma2", **HEADS, "sliding_window": 4, "query_pre_attn_scalar": 50},
    "gemma3": {"model_type": "gemma3_text", **HEADS, "sliding_window": 4, "sliding_window_pattern": 3, "query_pre_attn_scalar": 50},
    "gemma3 linear": {
        "model_type": "gemma3_text", **HEADS, "sliding_window": 4, "sliding_window_pattern": 2,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        },
    },
    "phi": {"model_type": "phi", **WIDE},
    "phi3": {"model_type": "phi3", **WIDE, "sliding_window": 7},
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 160, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "initializer_range": 0.15,
        "bos_token_id": 1, "eos_token_id": 2,
    },
}  # fmt: skip


def made(config: dict[str, Any], seed: int = 0) -> torch.nn.Module:
    """Return a module of a configuration; its norms and biases are random too."""
    from transformers import AutoConfig, AutoModelForCausalLM

    values = dict(config)
    kind = values.pop("model_type")
    model: torch.nn.Module = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **values), attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
            else:
                base = 1.0 if name.endswith("weight") and "gemma" not in kind else 0.0
                parameter.copy_(base + torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def rounded(model: torch.nn.Module, bits: int, group: int = 32, head_bits: int = 8) -> None:
    """Replace each matrix of weights in a module by the values that quantization gives it."""
    state = model.state_dict()
    for name, tensor in state.items():
        if tensor.dim() != 2 or name.endswith(("wpe.weight",)):
            continue
        conv_1d = "transformer.h." in name
        is_head = name.endswith(("embed_tokens.weight", "wte.weight", "lm_head.weight"))
        weights = tensor.numpy().T if conv_1d else tensor.numpy()
        values = dequantized(quantize(np.ascontiguousarray(weights), bits=head_bits if is_head else bits, group=group))
        tensor.copy_(torch.from_numpy(values.T.copy() if conv_1d else values))


def logits(model: torch.nn.Module, tokens: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        result: np.ndarray[Any, Any] = model(torch.tensor([tokens])).logits[0].double().numpy()
    return result


def exact_logits(decoder: Decoder, tokens: list[int]) -> Any:
    """Return the logits of a decoder's weights in float64, with no rounding between the steps."""
    return logits_in_floats(decoder, tokens, rounds=False, dtype=np.float64)
