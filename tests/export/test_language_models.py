# SPDX-License-Identifier: BSD-3-Clause
"""Bundles of language models: tokens in, tokens out, on a Cortex-M33 and on this computer."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.features.export.bundle import export_bundle
from openneutron.isa import Program, decode
from openneutron.language.model import Interface
from openneutron.language.program import Plan, compiled, never
from openneutron.language.times import calls_of
from openneutron.options import CompileOptions
from openneutron.pytorch.language.package import packaged
from tests.export.bundles import SANITIZERS, built, checked_on_the_host, execute, host_program
from tests.language.random_decoders import random_decoder

ROWS = 4
WITH_FLOATS = "-DOPENNEUTRON_CPU=-mcpu=cortex-m33 -mfpu=fpv5-sp-d16 -mfloat-abi=hard"

FAMILIES = (1, 4, 8)
"""Seeds of decoders of int8 and int4 weights in one model: GELU and LayerNorm in a parallel block; gated ReLU with rotary embeddings; gated SiLU
with RMSNorm, head norms, grouped queries and a window."""


@dataclass(frozen=True, slots=True)
class Model:
    """A compiled decoder of random weights."""

    name: str
    buffer: bytes
    program: Program


def decoder(seed: int, name: str, profile: bool = False) -> Model:
    random = random_decoder(seed)
    options = CompileOptions(target="imxrt700-cpu", profile=profile)
    program = compiled(random, targets.described("imxrt700-cpu"), Plan(ROWS, never), options).program
    facts = Interface(ROWS, random.context, random.vocabulary, None, (3,))
    return Model(name, packaged(program, facts), program)


def test_a_cortex_m33_gives_the_logits_and_tokens_of_the_simulator(tmp_path: Path) -> None:
    """The instructions of all calls of a run are those of the cost model within its error."""
    models = [decoder(seed, f"decoder{seed}", profile=True) for seed in FAMILIES]
    bundle = export_bundle(models, tmp_path / "bundle")
    built(bundle.folder, WITH_FLOATS, "-DOPENNEUTRON_WERROR=ON")
    done = execute(bundle.folder / "build" / "example.elf", "-icount", "shift=0")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count("19 of 19 tokens as expected") == len(FAMILIES)
    equal = re.findall(r"output0: (\d+) of (\d+) bytes as expected", said)
    assert len(equal) == len(FAMILIES) and all(found == wanted for found, wanted in equal)
    assert said.endswith("passed\n")
    profiles = re.findall(r"program,checksum,call,kernel,time\n(.*?)openneutron-profile,end", said, re.DOTALL)
    for model, profile in zip(models, profiles, strict=True):
        counted = sum(int(line.rpartition(",")[2]) for line in profile.splitlines())
        calls = [call for _, call in calls_of(decode(model.program))]
        instructions = math.fsum(call.instructions(ROWS, 0, "dsp") or math.nan for call in calls)
        assert instructions == pytest.approx(counted, rel=0.15), model.name


def test_texts_on_this_computer(tmp_path: Path) -> None:
    model = decoder(1, "decoder")
    folder = export_bundle(model, tmp_path / "bundle").folder
    (tmp_path / "check").mkdir()
    assert checked_on_the_host(folder, tmp_path / "check").returncode == 0
    program = host_program(folder, tmp_path, Path(__file__).parent / "text_main.c", sanitizers=SANITIZERS)
    assert subprocess.run([program], check=False).returncode == 0
    with pytest.raises(InvalidOptionError) as raised:
        export_bundle(model, tmp_path / "other", golden="tokens.npy")
    assert str(raised.value) == (
        "golden: 'decoder.pte' is a language model, whose example continues a prompt of its own. Leave it out."
    )
