# SPDX-License-Identifier: BSD-3-Clause
"""CompileOptions: the checks, the JSON form, and the one place where an option is declared."""

from __future__ import annotations

import dataclasses
import json
import operator
from dataclasses import dataclass
from inspect import Signature
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from openneutron.cli.options import of_flags
from openneutron.compiler import CompileOptions
from openneutron.device.converter import get
from openneutron.errors import InvalidOptionError, InvalidTargetError
from openneutron.options import CONVERTERS
from openneutron.options.flags import flags_of, option, with_flags


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sram_budget": 1.5}, "sram_budget: it is 1.5; a budget is a whole number of bytes."),
        ({"sram_budget": "12KiB"}, "sram_budget: it is '12KiB'; a budget is a whole number of bytes."),
        ({"sram_budget": True}, "sram_budget: it is True; a budget is a whole number of bytes."),
        ({"sram_budget": -3}, "sram_budget: it is -3 bytes; a budget is above 0."),
        ({"io_place": "stack"}, "io_place: 'stack' is unknown; there are arena, caller."),
        ({"effort": "hihg"}, "effort: 'hihg' is unknown; there are default, high. Did you mean 'high'?"),
        ({"effort": None}, "effort: 'None' is unknown; there are default, high."),
        ({"check": 1}, "check: it is 1; it is True or False."),
        ({"converter_timeout": 0}, "converter_timeout: it is 0; it is a whole number of seconds above 0."),
        ({"converter_timeout": "10"}, "converter_timeout: it is '10'; it is a whole number of seconds above 0."),
        ({"converter": "eig"}, "converter: 'eig' is unknown; there are open, eiq, driver. Did you mean 'eiq'?"),
        (
            {"converter_flags": "--a"},
            "converter_flags: it is '--a'; it is a tuple of texts.",
        ),
        (
            {"converter_flags": ("--a",)},
            "converter_flags: '--a' is for NXP's converter. Leave it out, or set converter='eiq'.",
        ),
    ],
)
def test_unusable_values(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        CompileOptions(**given)
    assert str(caught.value) == said


def test_targets_are_known() -> None:
    with pytest.raises(InvalidTargetError, match=r"^Target `imx96` is not a valid target\."):
        CompileOptions(target="imx96")


@pytest.mark.parametrize("given", [{"sram_budget": 4096}, {"io_place": "arena"}, {"effort": "high"}], ids=str)
def test_nxps_converter_has_fewer_options(given: dict[str, Any]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(InvalidOptionError) as caught:
        CompileOptions(converter="eiq", **given)
    assert str(caught.value) == (
        f"{name}: it is {value!r}; NXP's converter has no such option. Leave it out with converter='eiq'."
    )
    CompileOptions(converter="eiq", io_place="caller", prefetch_constants=True, profile=True)


def test_every_converter_has_its_name() -> None:
    assert tuple(get(name).name for name in CONVERTERS) == CONVERTERS


def test_the_place_of_inputs_and_outputs() -> None:
    options = CompileOptions()
    assert (options.place, options.placed("caller").place) == ("arena", "caller")
    assert CompileOptions(io_place="arena").placed("caller").place == "arena"


def test_json_keeps_every_option() -> None:
    for options in (
        CompileOptions(sram_budget=np.int64(4096), io_place="caller", effort="high", check=True),  # type: ignore[arg-type]
        CompileOptions(converter="eiq", converter_flags=("--a=b c",), profile=True),
    ):
        text = json.dumps(options.to_dict(), default=operator.index)
        assert CompileOptions.from_dict(json.loads(text)) == options
    with pytest.raises(InvalidOptionError) as caught:
        CompileOptions.from_dict({"sram": 3})
    assert str(caught.value) == "compile options: 'sram' is unknown."


def _is_even(name: str, value: int) -> None:
    if value % 2:
        raise InvalidOptionError(f"{name}: it is {value}; it is even.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended(CompileOptions):
    """The options with two more."""

    unroll: int = option(0, "Iterations to unroll.", metavar="N", read=int, check=_is_even, eiq=())
    """The iterations to unroll."""
    fuse: bool = option(False, "Fuse all.")
    """True fuses all operators."""


def test_one_declaration_makes_an_option() -> None:
    """The check, the flag in texts, the parameter of the command line and the JSON form follow from the field."""
    with pytest.raises(InvalidOptionError, match=r"^unroll: it is 3; it is even\.$"):
        Extended(unroll=3)
    with pytest.raises(InvalidOptionError, match=r"^unroll: it is 2; NXP's converter has no such option\."):
        Extended(unroll=2, converter="eiq")
    extended = with_flags(Extended(), ["--unroll=4", "--fuse"])
    assert extended == Extended(unroll=4, fuse=True)
    assert Extended.from_dict(extended.to_dict()) == extended
    parameters = of_flags(Extended)
    assert list(parameters) == [field.name for field in dataclasses.fields(Extended)]

    def command(**given: Any) -> None:
        print(given["unroll"], given["fuse"])

    command.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
    application = typer.Typer(rich_markup_mode=None)
    application.command()(command)
    assert CliRunner().invoke(application, ["--unroll", "6", "--fuse"]).output == "6 True\n"
    assert "Iterations to unroll." in CliRunner().invoke(application, ["--help"]).output


def test_every_option_is_documented() -> None:
    for name, flag in flags_of(CompileOptions).items():
        assert flag.declared.help.endswith("."), name
        assert flag.is_switch or flag.declared.choices or flag.declared.metavar, name
