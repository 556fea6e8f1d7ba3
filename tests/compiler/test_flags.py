# SPDX-License-Identifier: BSD-3-Clause
"""The compiler's options as flags in a text."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron.compiler import CompileOptions
from openneutron.errors import InvalidOptionError
from openneutron.options.flags import flags_of, size_in_bytes, with_flags

FLAGS = flags_of(CompileOptions)
THERE_ARE = "--sram-budget=KIB, --io-place=arena|caller, --prefetch-constants, --no-host-calls, --fold-quantize, --effort=default|high, --no-check, --without-passes=NAMES, --profile"


def test_every_option_has_one() -> None:
    assert list(FLAGS) == [field.name for field in dataclasses.fields(CompileOptions)]


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        ([], {}),
        (["--sram-budget=512"], {"sram_budget": 512 * 1024}),
        (["--sram-budget", "1.5MiB", "--profile"], {"sram_budget": 1536 * 1024, "profile": True}),
        (["--io-place=arena", "--prefetch-constants"], {"io_place": "arena", "prefetch_constants": True}),
        (["--profile", "--profile"], {"profile": True}),
        (["--no-check", "--no-profile"], {"check": False}),
        (["--check"], {}),
    ],
)
def test_what_they_say(flags: list[str], changes: dict[str, object]) -> None:
    changed = CompileOptions.from_dict(changes)
    for options in (CompileOptions(), changed):
        assert with_flags(options, flags) == changed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sram-buget=5"], f"extra_flags: '--sram-buget' is not a flag of the compiler; its flags are {THERE_ARE}. Did you mean '--sram-budget'?"),
        (["-O3"], f"extra_flags: '-O3' is not a flag of the compiler; its flags are {THERE_ARE}."),
        (["--converter=eiq"], f"extra_flags: '--converter' is not a flag of the compiler; its flags are {THERE_ARE}."),
        (["--sram-budget"], "extra_flags: '--sram-budget' has no value. Write --sram-budget=KIB."),
        (["--sram-budget", "--profile"], "extra_flags: '--sram-budget' has no value. Write --sram-budget=KIB."),
        (["--sram-budget=1.5"], "extra_flags: --sram-budget: '1.5' is no size above 0 and up to 4194303 in whole KiB. Write 287, 287KiB or 1.5MiB."),
        (["--profile=no"], "extra_flags: '--profile' takes no value; 'no' is given."),
        (["--io-place=stack"], "io_place: 'stack' is unknown; there are arena, caller."),
        (["--sram-budget=1", "--sram-budget=2"], "extra_flags: '--sram-budget' is given twice with different values. Leave one out."),
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
        str(caught.value) == "extra_flags: '--sram-budget' sets 1024, but sram_budget is 2048 already. Leave one out."
    )


@pytest.mark.parametrize(("text", "size"), [("287", 287 << 10), ("0287 KiB", 287 << 10), ("1.5mib", 3 << 19)])
def test_sizes(text: str, size: int) -> None:
    assert size_in_bytes(text) == size
