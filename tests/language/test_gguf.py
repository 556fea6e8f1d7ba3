# SPDX-License-Identifier: BSD-3-Clause
"""Decoders from GGUF files, which the tests write with the package gguf as llama.cpp's converter does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openneutron.errors import InvalidModelError, OpenNeutronWarning
from openneutron.pytorch.language.decoder import decoder_of
from tests.language.models import CONFIGS, HEADS, WIDE, exact_logits, logits, made

TOKENS = [int(each) for each in np.random.default_rng(7).integers(3, 160, 20)]
SOURCES = {
    "llama": CONFIGS["llama"],
    "llama tied": {"model_type": "llama", **WIDE, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", **WIDE},
    "qwen3": CONFIGS["qwen3"],
    "gemma": {"model_type": "gemma", **HEADS},
    "phi3": {"model_type": "phi3", **WIDE},
    "gpt2": CONFIGS["gpt2"],
}


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of queries or keys as convert_hf_to_gguf.py writes them for files of llama."""
    shape = weights.shape
    return weights.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def write(path: Path, model: Any, kind: str = "F32") -> None:
    """Write a module as GGUF; its matrices have the type ``kind``."""
    import gguf

    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_eos_token_id(2)
    if architecture == "gpt2":
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_key_length(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    kinds = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = np.ascontiguousarray(tensor.numpy())
        if architecture == "llama" and "q_proj" in name:
            array = permuted(array, config.num_attention_heads)
        if architecture == "llama" and "k_proj" in name:
            array = permuted(array, config.num_key_value_heads)
        if "gemma" in architecture and "norm" in name:
            array = array + 1
        if architecture == "gpt2" and array.ndim == 2 and ".h." in name:
            array = np.ascontiguousarray(array.T)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if array.ndim == 2:
            number = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(stored, gguf.quants.quantize(array, number), raw_dtype=number)
        else:
            writer.add_tensor(stored, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_computes_what_its_module_does(name: str, tmp_path: Path) -> None:
    model = made(SOURCES[name])
    path = tmp_path / "tiny.gguf"
    write(path, model)
    decoder = decoder_of(path, context=32)
    wanted = exact_logits(decoder_of(model, context=32), TOKENS)
    found = exact_logits(decoder, TOKENS)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    assert np.abs(found - logits(model, TOKENS)).max() < 0.2 * np.abs(wanted).max()
    assert decoder.name == "tiny" and decoder.end_tokens == (2,)


def test_values_of_q4_0_are_kept(tmp_path: Path) -> None:
    import gguf

    model = made(SOURCES["llama"])
    path = tmp_path / "tiny.gguf"
    write(path, model, "Q4_0")
    with pytest.warns(OpenNeutronWarning, match=r"weights of Q4_0 are quantized anew.* dB\.$"):
        decoder = decoder_of(path, context=32, bits=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = decoder_of(path, context=32, bits=4, head_bits=4)
    weights = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for number, layer in enumerate(decoder.layers):
        stored = weights[f"blk.{number}.ffn_down.weight"]
        wanted = gguf.quants.dequantize(stored.data, stored.tensor_type)
        found = layer.down.values * layer.down.scales[:, None]
        assert np.abs(found - wanted).max() < 1.2 * layer.down.scales.max()
        codes = layer.down.int4
        assert codes is not None
        scales = wanted.reshape(64, -1, 32)
        largest = np.take_along_axis(scales, np.abs(scales).argmax(-1)[..., None], -1) / -8
        expected = np.rint(scales / largest)
        expected = np.where(largest < 0, -expected - 1, expected).reshape(64, 96)
        assert np.array_equal(codes.codes, expected)
    assert whole.head.bits == 4 and whole.layers[0].qkv.int4 is not None


def test_other_quantized_weights_are_said_with_their_error(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write(path, made(SOURCES["llama"]), "Q8_0")
    with pytest.warns(OpenNeutronWarning) as found:
        decoder_of(path, context=32)
    text = str(found[0].message)
    assert text.startswith(
        f"{path}: weights of Q8_0 are quantized anew, to int8 by row or int4 in groups; the signal-to-noise ratio against the file's is 4"
    )
    assert len(found) == 1


def test_files_that_are_no_model_are_refused(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "tiny.gguf"
    with pytest.raises(InvalidModelError) as raised:
        decoder_of(path, context=32)
    assert str(raised.value) == f"{path}: there is no such file."
    path.write_bytes(b"no GGUF at all, but some bytes that go on")
    with pytest.raises(InvalidModelError) as raised:
        decoder_of(path, context=32)
    assert str(raised.value).startswith(f"{path}: it can't be read as GGUF: ")
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(InvalidModelError) as raised:
        decoder_of(path, context=32)
    assert str(raised.value) == (
        f"{path}: its architecture is 'mamba'; known are llama, qwen2, qwen3, gemma, phi3, gpt2."
    )
