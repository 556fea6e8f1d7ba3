# SPDX-License-Identifier: BSD-3-Clause
"""Train a small language model here, and measure the accuracy that quantization leaves.

    python -m tests.language.trained --minutes 25 --save FOLDER

The model has the family Llama, 9.4 M parameters and a BPE vocabulary of 2,048. Its text is on every machine that has torch: the documentation
strings of Python's library, of numpy and of torch, and the licences in /usr/share/common-licenses. One document in 16 is held out. The table
compares decoders with the float model on held-out text: the KL divergence, the part of tokens with the same most likely next token, and the
perplexity. Activations, keys and values are rounded as docs/explanation/language-models.md states. Below it are texts of the float model and
of its program. Training multiplies in bfloat16, with float32 parameters.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np
import torch

import openneutron.llm
from openneutron.language.decoder import Decoder
from openneutron.language.generation import generate
from openneutron.language.repair import Judged, divergences, log_softmax, logits
from openneutron.pytorch.language.calibration import judged
from openneutron.pytorch.language.decoder import decoder_of

LENGTH = 128
BATCH = 16
VOCABULARY = 2048
LICENCES = Path("/usr/share/common-licenses")
PEAK_RATE = 2e-3
PACKAGES = ("numpy", "torch")
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
    "GPTQ": {"awq": False},
    "AWQ": {"gptq": False, "awq": True},
    "AWQ, GPTQ": {"gptq": True, "awq": True},
    "AWQ, GPTQ, repair to 0.0004": {"gptq": True, "awq": True, "repair": 0.0004},
}
PROMPTS = ("Return the", "This module", "The GNU General Public License", "Parameters\n----------\n")
TOKENS = 48
PAGE = Path("docs/how-to/language-models.md")
BEGIN, END = "<!-- python -m tests.language.trained --model FOLDER --page -->\n", "<!-- end -->\n"


def documents() -> Iterator[str]:
    """Yield the documentation strings of each module of Python's library and of the packages, and each licence, in the order of their names."""
    library, packages = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    modules = [path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts]
    for package in PACKAGES:
        modules += sorted((packages / package).rglob("*.py"))
    for path in modules:
        if {"test", "tests"} & set(path.parts):
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


def tokenized(folder: Path | None) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return a tokenizer, the folder's or a trained one, and the tokens of the text to train on and of the held-out text."""
    from tokenizers import Tokenizer
    from tokenizers.implementations import ByteLevelBPETokenizer

    texts = list(documents())
    held = [crc32(text.encode()) % 16 == 0 for text in texts]
    if folder:
        tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        tokenizer = ByteLevelBPETokenizer()
        trained = [text for text, out in zip(texts, held, strict=True) if not out]
        tokenizer.train_from_iterator(trained, VOCABULARY, special_tokens=["<end>"], show_progress=False)
    parts: dict[bool, list[int]] = {False: [], True: []}
    for encoded, out in zip(tokenizer.encode_batch(texts), held, strict=True):
        parts[out] += [*encoded.ids, 0]
    return tokenizer, torch.tensor(parts[False]), torch.tensor(parts[True])


def train(minutes: float, tokens: torch.Tensor) -> Any:
    """Return a model after this time of training, with a learning rate that falls to a tenth by a cosine."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**SHAPE))
    print(f"{sum(each.numel() for each in model.parameters()):,} parameters, {len(tokens):,} tokens", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    begin, step, losses = time.monotonic(), 0, []
    while (part := (time.monotonic() - begin) / (60 * minutes)) < 1:
        rate = PEAK_RATE * min(1, (step + 1) / 100) * (0.55 + 0.45 * np.cos(np.pi * part))
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = torch.randint(len(tokens) - LENGTH, (BATCH,), generator=generator)
        batch = tokens[at[:, None] + torch.arange(LENGTH)]
        with torch.autocast("cpu", torch.bfloat16):
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


def row(name: str, decoder: Decoder, texts: Sequence[Judged]) -> str:
    """Return a row of the table: KL divergence, equal top-1, perplexity and its growth."""
    divergence, equal, losses = [], [], ([], [])
    for text in texts:
        found = logits(decoder, text.tokens)
        divergence.append(divergences(text.wanted, found))
        equal.append(found.argmax(-1) == text.wanted.argmax(-1))
        for each, values in zip(losses, (found, text.wanted), strict=True):
            each.append(-np.take_along_axis(log_softmax(values[:-1]), np.asarray(text.tokens)[1:, None], -1))
    perplexity, before = (float(np.exp(np.concatenate(each).mean(dtype=np.float64))) for each in losses)
    return f"| {name} | {np.concatenate(divergence).mean():.5f} | {np.concatenate(equal).mean():.2%} | {perplexity:.3f} | {perplexity / before - 1:+.2%} |"


def table(model: Any, texts: Sequence[Sequence[int]], calibration: list[list[int]]) -> Iterator[str]:
    """Yield the rows of the table: float, then each form of weights by each method, for the model and for one with outlier channels."""
    yield "| Weights, method | KL, nats a token | Equal top-1 | Perplexity | Growth |\n|:--|--:|--:|--:|--:|"
    wanted = judged(model, texts)
    for kind, source in (("", model), ("outlier channels, ", with_outliers(model))):
        for bits, weights in ((8, "int8"), (4, "int4 in groups of 32")):
            for method, options in METHODS.items():
                if "repair" in options and bits == 8:
                    continue
                decoder = decoder_of(
                    source, context=LENGTH, bits=bits, calibration=calibration if options else None, **options
                )
                yield row(f"{kind}{weights}, {method}", decoder, wanted)


def side_by_side(model: Any, tokenizer: Any) -> Iterator[str]:
    """Yield the texts that the float model and its program for i.MX 95 write, both by the most likely token."""
    made = openneutron.llm.export(model, target="imx95", context=512, bits=4, name="trained")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        made.save(path)
        tokenizer.save(str(Path(folder) / "tokenizer.json"))
        for prompt in PROMPTS:
            ids = tokenizer.encode(prompt).ids
            floats = model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False)[0].tolist()
            ours = "".join(generate(path, prompt, tokenizer=Path(folder) / "tokenizer.json", max_tokens=TOKENS))
            yield f"Prompt `{prompt}`:\n\n```text\nfloat: {prompt}{tokenizer.decode(floats[len(ids) :])}\n\nNPU:   {prompt}{ours}\n```\n"


def write_page(lines: Sequence[str]) -> None:
    """Write lines into the page, between its two marks."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=25, help="the time of training")
    parser.add_argument("--texts", type=int, default=32, help=f"the held-out texts of {LENGTH} tokens to measure on")
    parser.add_argument("--calibration", type=int, default=32, help=f"the texts of {LENGTH} tokens to calibrate with")
    parser.add_argument("--save", type=Path, help="a folder for the trained model")
    parser.add_argument("--model", type=Path, help="the folder of a model that --save wrote, instead of training")
    parser.add_argument("--page", action="store_true", help=f"write the table and the texts into {PAGE} too")
    chosen = parser.parse_args()
    tokenizer, tokens, held = tokenized(chosen.model)
    if chosen.model:
        from transformers import LlamaForCausalLM

        model: Any = LlamaForCausalLM.from_pretrained(str(chosen.model)).eval()
    else:
        model = train(chosen.minutes, tokens)
    if chosen.save:
        model.save_pretrained(chosen.save)
        tokenizer.save(str(chosen.save / "tokenizer.json"))
    batches = held[: len(held) // LENGTH * LENGTH].reshape(-1, LENGTH)
    batches = batches[:: max(1, len(batches) // chosen.texts)][: chosen.texts]
    starts = np.linspace(0, len(tokens) - LENGTH, chosen.calibration).astype(int)
    lines = []
    calibration = [tokens[at : at + LENGTH].tolist() for at in starts]
    for line in chain(table(model, batches.tolist(), calibration), [""], side_by_side(model, tokenizer)):
        print(line, flush=True)
        lines.append(line)
    if chosen.page:
        write_page(lines)


if __name__ == "__main__":
    main()
