# SPDX-License-Identifier: BSD-3-Clause
"""The compiler's options as flags."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron.compiler import CompileOptions
from openneutron.errors import InvalidOptionError
from openneutron.flags import FLAGS, with_flags

THERE_ARE = ", ".join(str(flag) for flag in FLAGS.values())


def test_every_option_has_one() -> None:
    assert {flag.field for flag in FLAGS.values()} == {field.name for field in dataclasses.fields(CompileOptions)}


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        ([], {}),
        (["--sram-budget=512"], {"sram_budget": 512 * 1024}),
        (["--sram-budget", "512", "--profile"], {"sram_budget": 512 * 1024, "profile": True}),
        (["--io-place=arena", "--fetch-constants-to-sram"], {"io": "arena", "fetch_constants_to_sram": True}),
        (["--profile", "--profile"], {"profile": True}),
    ],
)
def test_what_they_say(flags: list[str], changes: dict[str, object]) -> None:
    for options in (
        CompileOptions(io="caller"),
        CompileOptions(io="caller", **{k: v for k, v in changes.items() if k != "io"}),
    ):
        assert with_flags(options, flags) == dataclasses.replace(CompileOptions(io="caller"), **changes)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sram-buget=5"], f"extra_flags: '--sram-buget' is no flag of the compiler; there are {THERE_ARE}. Did you mean '--sram-budget'?"),
        (["-O3"], f"extra_flags: '-O3' is no flag of the compiler; there are {THERE_ARE}."),
        (["--sram-budget"], "extra_flags: '--sram-budget' has no value. Write --sram-budget=KIB."),
        (["--sram-budget", "--profile"], "extra_flags: '--sram-budget' has no value. Write --sram-budget=KIB."),
        (["--sram-budget=1.5"], "extra_flags: --sram-budget is '1.5'; it is a whole number. Write --sram-budget=KIB."),
        (["--sram-budget=0"], "sram_budget: it is 0 bytes; a budget is above 0."),
        (["--profile=no"], "extra_flags: '--profile' is a switch; 'no' is no part of it."),
        (["--io-place=stack"], "io: 'stack' is no place for inputs and outputs; there are ('arena', 'caller')."),
        (["--sram-budget=1", "--sram-budget=2"], "extra_flags: '--sram-budget' is given twice, and differently. Leave one out."),
    ],
)  # fmt: skip
def test_what_can_not_be_read(flags: list[str], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        with_flags(CompileOptions(), flags)
    assert str(caught.value) == message


def test_a_flag_against_an_option() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        with_flags(CompileOptions(sram_budget=2048), ["--sram-budget=1"])
    assert (
        str(caught.value) == "extra_flags: '--sram-budget' says 1024, and sram_budget is 2048 already. Leave one out."
    )
