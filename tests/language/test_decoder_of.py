# SPDX-License-Identifier: BSD-3-Clause
"""Decoders from modules, folders, state dicts and configurations against the modules of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.decoder import Decoder, Matrix
from openneutron.language.quantization import dequantized
from openneutron.pytorch.language.decoder import decoder_of
from tests.language.models import CONFIGS, exact_logits, logits, made, rounded

TOKENS = [int(each) for each in np.random.default_rng(7).integers(3, 160, 20)]


def matrices(decoder: Decoder) -> list[Matrix]:
    layers = [each for layer in decoder.layers for each in (layer.qkv, layer.output, layer.up, layer.down)]
    return [decoder.embedding, *layers, decoder.head]


def same(a: Decoder, b: Decoder) -> bool:
    return all(
        np.array_equal(x.values, y.values) and np.array_equal(x.scales, y.scales)
        for x, y in zip(matrices(a), matrices(b), strict=True)
    )


def distance(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_decoder_computes_what_its_module_does(name: str, bits: int) -> None:
    model = made(CONFIGS[name])
    decoder = decoder_of(model, context=32, bits=bits)
    rounded(model, bits)
    assert distance(exact_logits(decoder, TOKENS), logits(model, TOKENS)) < 1e-4
    assert {each.bits for each in matrices(decoder)[1:-1]} == {bits}
    assert decoder.embedding.bits == decoder.head.bits == 8


def test_facts_of_a_configuration_reach_the_decoder() -> None:
    gemma = decoder_of(made(CONFIGS["gemma3"]), context=32)
    assert [layer.window for layer in gemma.layers] == [4, 4, 0]
    assert gemma.layers[0].rotary is gemma.layers[1].rotary is not gemma.layers[2].rotary
    assert gemma.head is gemma.embedding
    assert (gemma.begin_token, gemma.end_tokens) == (1, (2,))
    short = decoder_of(made(CONFIGS["mistral"]), context=5)
    assert [layer.window for layer in short.layers] == [0, 0, 0]
    assert decoder_of(made(CONFIGS["llama"]), context=32, bits=4, group=32, head_bits=4).head.group == 32


def test_a_folder_gives_the_decoder_of_its_module(tmp_path: Path) -> None:
    """One file, several files and a state dict give the same decoder; bfloat16 weights are read as their float32 values."""
    model = made(CONFIGS["llama tied, with biases"])
    whole = decoder_of(model, context=32, bits=4)
    for name, size in (("one", "1GB"), ("several", "60KB")):
        model.save_pretrained(tmp_path / name, max_shard_size=size)
        assert same(decoder_of(tmp_path / name, context=32, bits=4), whole)
    assert len(list((tmp_path / "several").glob("*.safetensors"))) > 1
    assert same(decoder_of(model.state_dict(), config=model.config, context=32, bits=4), whole)
    assert same(decoder_of(model.state_dict(), config=CONFIGS["llama tied, with biases"], context=32, bits=4), whole)
    settings = json.loads((tmp_path / "one" / "generation_config.json").read_text())
    (tmp_path / "one" / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [2, 9]}))
    assert decoder_of(tmp_path / "one", context=32).end_tokens == (2, 9)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "bfloat16")
    assert same(decoder_of(tmp_path / "bfloat16", context=32), decoder_of(model.float(), context=32))


def test_weights_of_a_base_model_have_no_prefix() -> None:
    model = made(CONFIGS["gpt2"])
    state = {name.removeprefix("transformer."): tensor for name, tensor in model.state_dict().items()}
    state["h.0.attn.bias"] = torch.zeros(1)
    assert same(decoder_of(state, config=model.config, context=32), decoder_of(model, context=32))


@pytest.mark.parametrize("name", ["llama", "gemma2", "phi", "gpt2"])
def test_random_weights_depend_on_the_seed_alone(name: str) -> None:
    first, again, other = (decoder_of(None, config=CONFIGS[name], context=32, bits=4, seed=seed) for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)
    assert dequantized(first.layers[0].qkv).std() == pytest.approx(0.15, rel=0.05)
    assert set(np.unique(first.final_norm.scale)) == {1.0}


def state() -> dict[str, torch.Tensor]:
    return dict(made(CONFIGS["llama"]).state_dict())


def message(model: Any, error: type[Exception] = InvalidModelError, **options: Any) -> str:
    with pytest.raises(error) as raised:
        decoder_of(model, **{"context": 32, **options})
    return str(raised.value)


def test_wrong_tensors_are_refused() -> None:
    config = CONFIGS["llama"]
    lost = {name: tensor for name, tensor in state().items() if name != "model.layers.1.mlp.up_proj.weight"}
    assert message(lost, config=config) == (
        "model: model.layers.1.mlp.up_proj.weight is missing; its configuration ('llama', 3 layers) asks for it."
    )
    assert message(state(), config={**config, "num_hidden_layers": 2}) == (
        "model: a 'llama' of 2 layers does not read model.layers.2.self_attn.q_proj.weight, model.layers.2.self_attn.k_proj.weight, "
        "model.layers.2.self_attn.v_proj.weight, model.layers.2.self_attn.o_proj.weight and 5 more. Give the configuration that belongs "
        "to these weights."
    )
    assert message(state(), config={**config, "vocab_size": 161}) == (
        "model: model.embed_tokens.weight has the shape [160, 64]; its configuration makes it [161, 64]. Give the configuration that "
        "belongs to these weights."
    )
    broken = state()
    broken["model.layers.0.mlp.down_proj.weight"][0, 0] = float("nan")
    assert message(broken, config=config) == (
        "model.layers.0.mlp.down_proj: a weight is not finite; a model's weights are finite numbers."
    )


def test_unknown_models_are_refused(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    assert message(None, config={"model_type": "bloom"}) == (
        "model: its model type is 'bloom'; known are llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, phi, phi3, gpt2. A model of "
        "another type that computes the same can be given as a state dict with a configuration of a known type."
    )
    assert message(None, config={**CONFIGS["llama"], "hidden_act": "mish"}) == (
        "model: its activation is 'mish'; known are silu, swish, gelu_new, gelu_pytorch_tanh, gelu, relu."
    )
    scaled = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert message(None, config={**CONFIGS["llama"], "rope_parameters": scaled}) == (
        "model: its rotary embedding has the scaling 'dynamic', whose angles change with the length of a text; the angles of a program are "
        "a table. Known are default, linear, llama3, yarn."
    )
    assert message(None, config={**CONFIGS["phi"], "qk_layernorm": True}) == (
        "model: its configuration has qk_layernorm; heads are normalized by RMSNorm alone."
    )
    assert message(torch.nn.Linear(2, 2)) == (
        "model: a module Linear without a config; a causal language model of transformers has one. A state dict can be given with a config."
    )
    assert message(tmp_path) == f"{tmp_path}: it has no config.json; a folder of a language model has one."
    assert message("hub/a-model") == (
        "hub/a-model: there is no such folder. Nothing is downloaded: give the folder that has the model's config.json, safetensors files "
        "and tokenizer.json."
    )
    LlamaConfig(**{key: value for key, value in CONFIGS["llama"].items() if key != "model_type"}).save_pretrained(
        tmp_path
    )
    assert message(tmp_path) == (
        f"{tmp_path}: it has no .safetensors file; a folder of a language model has its weights in them. A model in another form can be "
        "given as a module."
    )
    bad = tmp_path / "model.safetensors"
    bad.write_bytes(b"0123456789")
    assert message(tmp_path).startswith(f"{bad}: it can't be read as safetensors: ")


def test_options_that_do_not_fit_are_refused() -> None:
    model = made(CONFIGS["llama"])
    assert message(model, InvalidOptionError, context=65) == "context: 65 positions; this model has 1 to 64."
    assert message(model, InvalidOptionError, bits=5) == "bits: 5; weights have 4 or 8 bits."
    assert (
        message(model, InvalidOptionError, bits=4, group=16) == "group: 16; int4 weights have groups of 32, 64 or 128."
    )
    assert message(model, InvalidOptionError, bits=4, group=64) == (
        "model.layers.0.mlp.down_proj: 96 columns of weights are no multiple of the group of 64 int4 weights. Use group=32."
    )
    assert message({}, InvalidOptionError) == (
        "config: it is missing; a state dict, or random weights, need a configuration of transformers."
    )


def inputs(vocabulary: int = 160) -> list[list[int]]:
    return np.random.default_rng(5).integers(0, vocabulary, (6, 48)).tolist()


def error(decoder: Decoder, model: torch.nn.Module) -> float:
    """Return the mean squared difference of logits on other tokens than those of the calibration."""
    return float(np.square(exact_logits(decoder, TOKENS) - logits(model, TOKENS)).mean())


@pytest.mark.parametrize("name", CONFIGS)
def test_scales_of_input_channels_change_no_float_result(name: str) -> None:
    """With AWQ's scales, norms and weights change together: the result stays that of the module, up to the rounding of int8."""
    model = made(CONFIGS[name])
    plain, scaled = (decoder_of(model, context=32, calibration=inputs(), gptq=False, awq=awq) for awq in (False, True))
    assert any(
        not np.array_equal(a.attention_norm.scale, b.attention_norm.scale)
        for a, b in zip(plain.layers, scaled.layers, strict=True)
    )
    assert error(scaled, model) < 2 * error(plain, model)


@pytest.mark.parametrize("name", ["llama", "phi", "phi3", "gpt2", "gemma2"])
def test_calibration_lowers_the_error_of_int4(name: str) -> None:
    model = made(CONFIGS[name])
    plain = decoder_of(model, context=32, bits=4)
    better = decoder_of(model, context=32, bits=4, calibration=inputs())
    assert error(better, model) < error(plain, model)


def test_a_folder_is_calibrated_like_its_module(tmp_path: Path) -> None:
    model = made(CONFIGS["llama"])
    model.save_pretrained(tmp_path)
    options: dict[str, Any] = {"context": 32, "bits": 4, "calibration": inputs(), "awq": True}
    pairs = zip(matrices(decoder_of(tmp_path, **options)), matrices(decoder_of(model, **options)), strict=True)
    # transformers computes the folder's module with another attention, so that its inputs differ in their last bits.
    assert all(np.mean(a.values == b.values) > 0.98 for a, b in pairs)


def test_wrong_calibration_is_refused() -> None:
    model = made(CONFIGS["llama"])
    assert message(model, InvalidOptionError, calibration=[]) == (
        "calibration: it has no text; a few texts of some hundred tokens are enough."
    )
    for texts in (["a text"], [1, 2], [[1, 2.5]]):
        assert message(model, InvalidOptionError, calibration=texts) == (
            "calibration: text 0 is no list of tokens, which are integers. Encode it with the model's tokenizer."
        )
    assert message(model, InvalidOptionError, calibration=[[1] * 65]) == (
        "calibration: text 0 has 65 tokens; this model reads 1 to 64."
    )
    assert message(model, InvalidOptionError, calibration=[[1], [5, 160]]) == (
        "calibration: text 1 has the token 160; the model's vocabulary has 0 to 159. Use the model's tokenizer."
    )
    assert message(None, InvalidOptionError, config=CONFIGS["llama"], calibration=[[1]]) == (
        "calibration: it takes a module of transformers or a folder; other forms have no module that computes the texts."
    )


def test_repair_gives_8_bits_to_the_layers_that_need_them() -> None:
    model = made(CONFIGS["llama"])
    options: dict[str, Any] = {"context": 32, "bits": 4, "calibration": inputs()}
    loose, tight = (decoder_of(model, repair=most, **options) for most in (10, 1e-6))
    assert (
        loose.repair is not None and loose.repair.places == () and {each.bits for each in matrices(loose)[1:-1]} == {4}
    )
    assert (
        tight.repair is not None and len(tight.repair.places) == 12 and {each.bits for each in matrices(tight)} == {8}
    )
    before, least = loose.repair.before, tight.repair.after
    assert (
        str(loose.repair)
        == f"KL divergence {before:.3g} nats a token, at most 10 asked for: all layers keep their bits."
    )
    assert str(tight.repair).endswith("More than the 1e-06 asked for: int8 weights do not reach it.")
    between = decoder_of(model, repair=(before + least) / 2, **options)
    assert between.repair is not None and 0 < len(between.repair.places) < 12
    assert before == between.repair.before > between.repair.most >= between.repair.after > least
    named = {f"layer {number} {name}" for number, name in between.repair.places}
    assert all(each in str(between.repair) for each in named)
    for number, layer in enumerate(between.layers):
        for name in ("qkv", "output", "up", "down"):
            assert getattr(layer, name).bits == (8 if (number, name) in between.repair.places else 4)


def test_a_repair_without_what_it_needs_is_refused() -> None:
    model = made(CONFIGS["llama"])
    for options, wanted in (
        (
            {"bits": 8, "calibration": inputs()},
            "repair: layers of 8 bits; it gives 8 bits to some of the layers of bits=4.",
        ),
        ({"bits": 4}, "repair: 0 texts of calibration; it judges every fourth one, so that at least 4 are needed."),
    ):
        assert message(model, InvalidOptionError, repair=0.03, **options) == wanted
    assert message(model, InvalidOptionError, repair=0, bits=4, calibration=inputs()) == (
        "repair: 0 nats a token; the most KL divergence is above 0, such as 0.03."
    )
