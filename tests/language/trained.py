# SPDX-License-Identifier: BSD-3-Clause
"""Train a small language model here, and measure the accuracy that quantization leaves.

    python -m tests.language.trained --minutes 8

The model has the family Llama, 9.4 M parameters and a BPE vocabulary of 2,048. Its text is on every machine: the documentation strings of
Python's library, and the licences in /usr/share/common-licenses. One document in 16 is held out. The table compares decoders with the float
model on held-out text: the KL divergence, the part of tokens with the same most likely next token, and the perplexity. Activations are rounded
to int8 for each token, and keys and values to int8 for each head, as docs/explanation/language-models.md states; all else is in floats.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from openneutron.language.decoder import Decoder
from openneutron.language.quantization import dequantized
from openneutron.pytorch.language.decoder import decoder_of

LENGTH = 128
BATCH = 8
VOCABULARY = 2048
LICENCES = Path("/usr/share/common-licenses")
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 320,
    "intermediate_size": 864,
    "num_hidden_layers": 7,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "GPTQ": {"gptq": True},
    "AWQ": {"gptq": False, "awq": True},
    "AWQ, GPTQ": {"gptq": True, "awq": True},
}


def documents() -> Iterator[str]:
    """Yield the documentation strings of each module of Python's library, and each licence, in the order of their names."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, ValueError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        joined = "\n\n".join(text for text in texts if text)
        if len(joined) > 200:
            yield joined
    for path in sorted(LICENCES.glob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.read_text(errors="replace")


def tokenized() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of the text to train on, and of the held-out text."""
    from tokenizers import ByteLevelBPETokenizer

    texts = list(documents())
    held = [crc32(text.encode()) % 16 == 0 for text in texts]
    tokenizer = ByteLevelBPETokenizer()
    trained = [text for text, out in zip(texts, held, strict=True) if not out]
    tokenizer.train_from_iterator(trained, VOCABULARY, special_tokens=["<end>"], show_progress=False)
    parts: dict[bool, list[int]] = {False: [], True: []}
    for text, out in zip(texts, held, strict=True):
        parts[out] += [*tokenizer.encode(text).ids, 0]
    return torch.tensor(parts[False]), torch.tensor(parts[True])


def train(minutes: float, tokens: torch.Tensor) -> Any:
    """Return a model after this time of training, with a learning rate that falls to a tenth by a cosine."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**SHAPE))
    print(f"{sum(each.numel() for each in model.parameters()):,} parameters, {len(tokens):,} tokens", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    begin, step, losses = time.monotonic(), 0, []
    while (part := (time.monotonic() - begin) / (60 * minutes)) < 1:
        rate = 2e-3 * min(1, (step + 1) / 20) * (0.55 + 0.45 * np.cos(np.pi * part))
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = torch.randint(len(tokens) - LENGTH, (BATCH,), generator=generator)
        batch = tokens[at[:, None] + torch.arange(LENGTH)]
        loss = model(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        step += 1
        if step % 50 == 0:
            print(f"step {step}: loss {np.mean(losses[-50:]):.3f}", flush=True)
    print(f"{step} steps of {BATCH} x {LENGTH} tokens, last loss {np.mean(losses[-50:]):.3f}", flush=True)
    return model.eval()


def with_outliers(model: Any) -> Any:
    """Return a model that computes the same in floats, with four channels of 30 times the magnitude behind each norm of a layer."""
    result = deepcopy(model)
    channels = torch.tensor([5, 77, 150, 299])
    with torch.no_grad():
        for layer in result.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            for norm, modules in (
                (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
                (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
            ):
                norm.weight[channels] *= 30
                for module in modules:
                    module.weight[:, channels] /= 30
    return result


def installed(decoder: Decoder, model: Any) -> Any:
    """Return a copy of a model with a decoder's weights and norms, and the rounding of activations, keys and values."""
    result = deepcopy(model)
    inner, hidden = SHAPE["hidden_size"], SHAPE["intermediate_size"]

    def put(parameter: torch.Tensor, values: np.ndarray[Any, Any]) -> None:
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))

    with torch.no_grad():
        put(result.model.embed_tokens.weight, dequantized(decoder.embedding))
        put(result.model.norm.weight, decoder.final_norm.scale)
        for ours, layer in zip(decoder.layers, result.model.layers, strict=True):
            qkv, up = dequantized(ours.qkv), dequantized(ours.up)
            assert ours.mlp_norm is not None
            for at, name in enumerate(("q_proj", "k_proj", "v_proj")):
                put(getattr(layer.self_attn, name).weight, qkv[at * inner : (at + 1) * inner])
            put(layer.self_attn.o_proj.weight, dequantized(ours.output))
            put(layer.mlp.gate_proj.weight, up[:hidden])
            put(layer.mlp.up_proj.weight, up[hidden:])
            put(layer.mlp.down_proj.weight, dequantized(ours.down))
            put(layer.input_layernorm.weight, ours.attention_norm.scale)
            put(layer.post_attention_layernorm.weight, ours.mlp_norm.scale)
    for module in result.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]),))
    result.set_attn_implementation("int8_cache")
    return result


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return rows as int8 integers with one scale a row."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=2.0**-100) / 127
    return torch.round(x / scale) * scale


def register() -> None:
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        return sdpa_attention_forward(module, query, rounded(key), rounded(value), mask, **options)

    AttentionInterface.register("int8_cache", attention)
    ALL_MASK_ATTENTION_FUNCTIONS["int8_cache"] = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]


def log_probabilities(model: Any, batches: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([model(batch[None]).logits[:, :-1].double().log_softmax(-1) for batch in batches])


def row(name: str, found: torch.Tensor, wanted: torch.Tensor, batches: torch.Tensor) -> str:
    """Return a row of the table: KL divergence, equal top-1, perplexity and its growth."""
    divergence = float((wanted.exp() * (wanted - found)).sum(-1).mean())
    equal = float((found.argmax(-1) == wanted.argmax(-1)).double().mean())
    perplexities = [float((-each.gather(-1, batches[:, 1:, None])).mean().exp()) for each in (found, wanted)]
    grown = perplexities[0] / perplexities[1] - 1
    return f"{name:32} | {divergence:8.5f} | {equal:7.2%} | {perplexities[0]:8.3f} | {grown:+7.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=8, help="the time of training")
    parser.add_argument("--texts", type=int, default=32, help=f"the held-out texts of {LENGTH} tokens to measure on")
    parser.add_argument("--calibration", type=int, default=32, help=f"the texts of {LENGTH} tokens to calibrate with")
    parser.add_argument("--save", type=Path, help="a folder for the trained model")
    parser.add_argument("--model", type=Path, help="the folder of a model that --save wrote, instead of training")
    chosen = parser.parse_args()
    tokens, held = tokenized()
    if chosen.model:
        from transformers import LlamaForCausalLM

        model: Any = LlamaForCausalLM.from_pretrained(str(chosen.model)).eval()
    else:
        model = train(chosen.minutes, tokens)
    if chosen.save:
        model.save_pretrained(chosen.save)
    register()
    batches = held[: len(held) // LENGTH * LENGTH].reshape(-1, LENGTH)
    batches = batches[:: max(1, len(batches) // chosen.texts)][: chosen.texts]
    starts = np.linspace(0, len(tokens) - LENGTH, chosen.calibration).astype(int)
    calibration = [tokens[at : at + LENGTH].tolist() for at in starts]
    wanted = log_probabilities(model, batches)
    print(f"{'':32} | {'KL':>8} | {'top-1':>7} | {'perpl.':>8} |", flush=True)
    print(row("float", wanted, wanted, batches), flush=True)
    for kind, source in (("", model), ("outliers, ", with_outliers(model))):
        for bits in (8, 4):
            for method, options in METHODS.items():
                texts = calibration if options else None
                decoder = decoder_of(source, context=LENGTH, bits=bits, calibration=texts, **options)
                found = log_probabilities(installed(decoder, source), batches)
                weights = "int8" if bits == 8 else "int4 in groups of 32"
                print(row(f"{kind}{weights}, {method}", found, wanted, batches), flush=True)


if __name__ == "__main__":
    main()
