# SPDX-License-Identifier: BSD-3-Clause
"""Read GGUF files of causal language models, with the ``gguf`` package.

Q4_0 weights are kept as they are, as int4 in groups of 32. Weights in another quantized form are quantized anew, with a warning that
gives the error. The names of keys and tensors are those of the package (``gguf/constants.py``, ``gguf/tensor_mapping.py``), and what a
writer changes in the tensors is in llama.cpp's ``convert_hf_to_gguf.py``: files of the architecture "llama" have the rows of queries and keys
permuted, so that neighbouring values are rotary pairs; norms have the 1 of Gemma's added; weights of GPT-2 are transposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron.errors import InvalidModelError, warn
from openneutron.language.decoder import Decoder, Floats
from openneutron.language.quantization import GroupedWeights, decibels
from openneutron.pytorch.language.families import Config, family_of
from openneutron.pytorch.language.tensors import Shape, Weights, missing_package

if TYPE_CHECKING:
    from openneutron.pytorch.language.decoder import Form

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "phi3": "phi3",
    "gpt2": "gpt2",
}
"""The model type of transformers of each architecture of GGUF files that is read."""

PERMUTED = ("llama",)
"""The architectures whose rotary pairs are neighbouring values."""

FREQUENCIES = "rope_freqs.weight"
Q4_0_GROUP = 32


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensors:
    """The tensors of a GGUF file.

    ``found`` maps the parameter names of the package transformers (``model.norm.weight``) to the tensors that the
    package gguf reads. A tensor that has no such name keeps its name in the file.
    """

    found: Mapping[str, Any] = field(repr=False)

    def shapes(self) -> dict[str, Shape]:
        return {name: _shape(tensor) for name, tensor in self.found.items()}

    def read(self, name: str, shape: Shape) -> Weights:
        from gguf.quants import dequantize

        tensor = self.found[name]
        if tensor.tensor_type.name == "Q4_0":
            return _q4_0(np.asarray(tensor.data), shape)
        try:
            floats = dequantize(np.asarray(tensor.data), tensor.tensor_type)
        except NotImplementedError:
            raise InvalidModelError(
                f"{tensor.name}: its type {tensor.tensor_type.name} can't be read by the package gguf; F32, F16, BF16, Q4_0 and Q8_0 can."
            ) from None
        result: Floats = np.ascontiguousarray(floats.reshape(shape), np.float32)
        return result

    def kind(self, name: str) -> str:
        kind: str = self.found[name].tensor_type.name
        return "" if kind in ("F32", "F16", "BF16", "F64") else kind


def gguf_decoder(path: Path, *, context: int, form: Form, name: str | None) -> Decoder:
    """Return a GGUF file's model as a decoder. Warns of weights in a quantized form that are quantized anew. Raises
    as ``decoder_of`` does."""
    from openneutron.pytorch.language.decoder import Plan

    reader = _reader(path)
    values = {key: each.contents() for key, each in reader.fields.items()}
    architecture = values.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise InvalidModelError(f"{path}: its architecture is '{architecture}'; known are {', '.join(ARCHITECTURES)}.")
    stored = {tensor.name: tensor for tensor in reader.tensors}
    config = _config(path, architecture, values, stored)
    frequencies = stored.pop(FREQUENCIES, None)
    family = replace(family_of(config), from_one=False, transposed=False)
    plan = Plan(
        config,
        family,
        context,
        form,
        GgufTensors(_renamed(architecture, config, stored)),
        interleaved=architecture in PERMUTED,
        divisors=None if frequencies is None else np.asarray(frequencies.data, np.float32),
    )
    result = plan.decoder(name or str(values.get("general.name") or path.stem))
    for kind, (signal, noise) in plan.noise.items():
        keeps = " bits=4, group=32 keeps the values of the layers." if kind == "Q4_0" and form.bits == 8 else ""
        warn(
            f"{path}: weights of {kind} are quantized anew, to int8 by row or int4 in groups; the signal-to-noise ratio against the file's "
            f"is {decibels(signal, noise):.1f} dB.{keeps}"
        )
    end = values.get("tokenizer.ggml.eos_token_id")
    return result if end is None else replace(result, end_tokens=(int(end),))


def _reader(path: Path) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise missing_package("A .gguf file", error) from None
    if not path.is_file():
        raise InvalidModelError(f"{path}: there is no such file.")
    try:
        return gguf.GGUFReader(path)
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidModelError(f"{path}: it can't be read as GGUF: {text}") from None


def _config(path: Path, architecture: str, values: Mapping[str, Any], stored: Mapping[str, Any]) -> Config:
    """Return the configuration, as the package transformers has it, of the model in a GGUF file.

    ``values`` has the file's metadata by key. ``stored`` has its tensors by their names in the file, from which the
    vocabulary size, tied embeddings and biases of attention are known. ``path`` is for messages. Raises
    InvalidModelError for a missing key or token embedding, for an unknown scaling of the rotary embedding, and as
    ``config_of`` does.
    """
    from openneutron.pytorch.language.decoder import config_of

    def key(name: str, default: Any = None) -> Any:
        found = values.get(f"{architecture}.{name}", default)
        if found is None:
            raise InvalidModelError(f"{path}: its key '{architecture}.{name}' is missing.")
        return found

    if "token_embd.weight" not in stored:
        raise InvalidModelError(f"{path}: its tensor token_embd.weight is missing.")
    kind = values.get(f"{architecture}.rope.scaling.type", "none")
    if kind not in ("none", "linear") or any(name.startswith("rope_factors") for name in stored):
        raise InvalidModelError(
            f"{path}: its rotary embedding has the scaling '{kind}', or factors by the length of a text; known are none and linear."
        )
    heads, width = int(key("attention.head_count")), int(key("embedding_length"))
    size = int(key("attention.key_length", width // heads))
    names: dict[str, Any] = {
        "model_type": ARCHITECTURES[architecture],
        "vocab_size": _shape(stored["token_embd.weight"])[0],
        "hidden_size": width,
        "num_hidden_layers": int(key("block_count")),
        "num_attention_heads": heads,
        "max_position_embeddings": int(key("context_length")),
        "tie_word_embeddings": "output.weight" not in stored,
        "bos_token_id": values.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": values.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": None,
    }
    if architecture == "gpt2":
        return config_of(
            {
                **names,
                "n_inner": int(key("feed_forward_length")),
                "layer_norm_epsilon": key("attention.layer_norm_epsilon"),
            }
        )
    rotary = {"rope_type": "default", "rope_theta": float(key("rope.freq_base", 10000.0))}
    rotary["partial_rotary_factor"] = int(key("rope.dimension_count", size)) / size
    if kind == "linear":
        rotary |= {"rope_type": "linear", "factor": float(key("rope.scaling.factor"))}
    return config_of(
        {
            **names,
            "intermediate_size": int(key("feed_forward_length")),
            "num_key_value_heads": int(key("attention.head_count_kv", heads)),
            "head_dim": size,
            "rms_norm_eps": float(key("attention.layer_norm_rms_epsilon")),
            "rope_parameters": rotary,
            "attention_bias": "blk.0.attn_q.bias" in stored,
            "sliding_window": int(key("attention.sliding_window", 0)) or None,
        }
    )


def _renamed(architecture: str, config: Config, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's tensors by the names of transformers; others keep their name."""
    import gguf

    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    family = family_of(config)
    modules = [family.embedding, family.final_norm, family.head, *([family.positions] if family.positions else [])]
    for number in range(config.num_hidden_layers):
        at = family.layer.format(number)
        each = (family.attention_norm, *family.qkv, family.output, family.mlp_norm, *family.up, family.down)
        modules += [at + name for name in (*each, family.query_norm, family.key_norm) if name]
    ours = {names.get_name(module): module for module in modules}
    result = {}
    for name, tensor in stored.items():
        module, _, last = name.rpartition(".")
        result[f"{ours[module]}.{last}" if module in ours else name] = tensor
    return result


def _shape(tensor: Any) -> Shape:
    """Return a tensor's shape as NumPy has it. A GGUF file has the dimensions in reverse order. Each size counts
    values, also where several values share a byte."""
    return tuple(int(size) for size in reversed(tensor.shape))


def _q4_0(data: np.ndarray[Any, Any], shape: Shape) -> GroupedWeights:
    """Return the weights of a Q4_0 tensor, which stores blocks of 32 weights in 18 bytes (ggml-common.h). A block is
    a float16 scale and 16 bytes. The low halves of the bytes are weights 0 to 15, the high halves are weights 16 to
    31, and each half is the quantized weight + 8."""
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(-1, 2 + Q4_0_GROUP // 2)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    halves = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    codes = halves.astype(np.int8) - np.int8(8)
    return GroupedWeights(codes.reshape(shape), scales.reshape(shape[0], shape[1] // Q4_0_GROUP))
