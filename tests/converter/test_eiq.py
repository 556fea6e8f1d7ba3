# SPDX-License-Identifier: BSD-3-Clause
"""NXP's converter behind the interface: what it gives, and every way in which it may fail. Stand-ins play the SDK."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openneutron.device import converter
from openneutron.device.converter.kernel_selections import selection_of
from openneutron.device.mixed import FileSimulator
from openneutron.errors import ConverterError, InvalidOptionError, MissingToolError
from openneutron.features.compat import eiq_neutron_sdk
from openneutron.isa.microcode import with_facts
from openneutron.options import CompileOptions
from scripts.published_networks import cifarnet
from tests.support import fake_sdk
from tests.support.oracle import random_inputs, reference_outputs

EIQ, OPEN = converter.get("eiq"), converter.get("open")
OPTIONS = CompileOptions(converter="eiq")
OPEN_OPTIONS = CompileOptions(io_place="caller")
GRAPH = cifarnet()
WAY_OUT = (
    "Leave the operators that it stumbles on to the CPU with operators_not_to_delegate. "
    "Or compile with converter='open', this project's own compiler."
)


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder on sys.path where a test writes its SDK."""
    folder = tmp_path / "sdk"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def failure(body: str, sdk: Path) -> ConverterError:
    fake_sdk.write(sdk, body)
    with pytest.raises(ConverterError) as caught:
        EIQ.convert(GRAPH, OPTIONS)
    return caught.value


def test_without_the_sdk() -> None:
    with pytest.raises(MissingToolError) as caught:
        EIQ.check(OPTIONS)
    assert str(caught.value) == (
        f"eiq: NXP's package eiq_neutron_sdk is not installed for {sys.executable}. "
        "Install it as NXP's eIQ documentation says. "
        "Or compile with converter='open', this project's own compiler."
    )
    with pytest.raises(MissingToolError):
        EIQ.convert(GRAPH, OPTIONS)


def test_our_own_stand_in_is_not_taken_for_it() -> None:
    eiq_neutron_sdk.install()
    try:
        with pytest.raises(MissingToolError) as caught:
            EIQ.check(OPTIONS)
    finally:
        eiq_neutron_sdk.uninstall()
    assert str(caught.value) == (
        "eiq: eiq_neutron_sdk is openneutron.features.compat.eiq_neutron_sdk in this process, which is this project's compiler and "
        "not NXP's. Call openneutron.features.compat.eiq_neutron_sdk.uninstall() first."
    )


def test_what_it_makes(sdk: Path) -> None:
    fake_sdk.write(sdk, fake_sdk.OURS)
    got, want = EIQ.convert(GRAPH, OPTIONS), OPEN.convert(GRAPH, OPEN_OPTIONS)
    assert (got.program, got.inputs, got.outputs) == (want.program, want.inputs, want.outputs)
    assert (got.payload_version, got.compiled, got.kernel_selection) == (1, None, None)
    assert got.file is not None
    inputs = random_inputs(GRAPH, 1)
    for result, reference in zip(FileSimulator(got.file).run(inputs), reference_outputs(GRAPH, inputs), strict=True):
        np.testing.assert_array_equal(result, reference)


def test_options_and_flags_reach_it(sdk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sdk.write(sdk, fake_sdk.OURS + "\n")
    monkeypatch.chdir(tmp_path)
    options = CompileOptions(
        converter="eiq",
        prefetch_constants=True,
        profile=True,
        converter_flags=("--minNumOpsPerGraph=7", "--verbose", "--dumpAfterImport=console"),
    )
    got, want = (
        EIQ.convert(GRAPH, options, kernel_selection=True),
        OPEN.convert(GRAPH, replace(OPEN_OPTIONS, prefetch_constants=True, profile=True)),
    )
    named_as_theirs = replace(selection_of([want.program]), kinds=True).text()
    assert (got.program, got.kernel_selection) == (with_facts(want.program, ()), named_as_theirs)
    assert [path.name for path in tmp_path.iterdir()] == ["sdk"], "it works in a folder of its own"

    said = failure_of_flags(sdk, options)
    assert (
        "CompilationOptions(minNumOpsPerGraph=7, excludeGraphPasses='HoistSliceAboveTranspose,MergeTranspose', "
        "fetchConstantsToSRAM=True, dumpKernelSelectionCode=True, useProfiling=True, dumpAfterImport='console', "
        "dumpAfterGenerate='', verbose=True)"
    ) in said


def failure_of_flags(sdk: Path, options: CompileOptions) -> str:
    (sdk / "eiq_neutron_sdk" / "neutron_converter.py").write_text(
        fake_sdk.CONVERTER.format(body="    print(context.compilationOpts)\n    sys.exit(1)")
    )
    with pytest.raises(ConverterError) as caught:
        EIQ.convert(GRAPH, options, kernel_selection=True)
    return caught.value.output


@pytest.mark.parametrize(
    ("body", "code", "ended", "heard"),
    [
        (fake_sdk.ENDS, 3, "ended with exit code 3", "This is what it printed:\nabout to end\n"),
        (fake_sdk.ENDS_WELL, 0, "ended with exit code 0", "It printed nothing. "),
        (fake_sdk.CRASHES, -11, "was ended by signal 11 (SIGSEGV)", "This is what it printed:\ncore\n"),
    ],
)
def test_a_crash(body: str, code: int, ended: str, heard: str, sdk: Path) -> None:
    error = failure(body, sdk)
    assert str(error) == f"eiq: eiq_neutron_sdk {ended} and returned no model for '{GRAPH.name}'. {heard}{WAY_OUT}"
    assert error.exit_code == code


def test_an_exception(sdk: Path) -> None:
    error = failure(fake_sdk.RAISES, sdk)
    assert error.exit_code == 1
    assert str(error).startswith(
        f"eiq: eiq_neutron_sdk ended with exit code 1 and returned no model for '{GRAPH.name}'. "
        "This is what it printed:\nTraceback (most recent call last):\n"
    )
    assert str(error).endswith(f"\nValueError: tile size 3 is odd\n{WAY_OUT}")


def test_a_lot_of_output(sdk: Path) -> None:
    error = failure(fake_sdk.PRINTS, sdk)
    assert len(error.output) > 40000 * 19
    assert re.search(r"This is the last 4000 of \d+ characters that it printed:\n", str(error))
    assert len(str(error)) < 5000 and "ValueError: the end\n" in str(error)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (fake_sdk.GIVES_BACK, r"it has 0 NeutronGraphs among \d+ operators \(CONV_2D, .*\); a converted partition is exactly one"),
        (fake_sdk.GIVES_TWO, r"it has 2 NeutronGraphs among 6 operators \(.*\); a converted partition is exactly one NeutronGraph\. This"),
        (fake_sdk.GIVES_NOTHING, r"'the converted model' is no LiteRT model: bytes 4 to 7 are b''; a \.tflite file has b'TFL3' there\. It printed"),
    ],
)  # fmt: skip
def test_models_that_are_no_single_graph(body: str, why: str, sdk: Path) -> None:
    error = failure(body, sdk)
    start = f"eiq: the model that eiq_neutron_sdk made of '{GRAPH.name}' can't be used: "
    assert re.match(re.escape(start) + why, str(error)), str(error)
    assert str(error).endswith(WAY_OUT)


def test_a_kernel_selection_that_is_not_written(sdk: Path) -> None:
    fake_sdk.write(sdk, "context.compilationOpts.dumpKernelSelectionCode = False\n" + fake_sdk.OURS)
    with pytest.raises(ConverterError) as caught:
        EIQ.convert(GRAPH, OPTIONS, kernel_selection=True)
    message = str(caught.value)
    assert message.startswith(
        "eiq: eiq_neutron_sdk was asked for the kernel selection of 'cifarnet' and wrote none. This is what"
    )
    assert message.endswith("Leave dump_kernel_selection_code out, or take a release of the SDK that has it.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            CompileOptions(converter="eiq", converter_flags=("--minNumOpsPerGrap=2",)),
            "converter_flags: '--minNumOpsPerGrap' is no flag of eiq_neutron_sdk; its compilationOpts has dumpAfterGenerate, "
            "dumpAfterImport, dumpKernelSelectionCode, excludeGraphPasses, fetchConstantsToSRAM, minNumOpsPerGraph, "
            "useProfiling, verbose. Did you mean 'minNumOpsPerGraph'?",
        ),
        (
            CompileOptions(converter="eiq", converter_flags=("minNumOpsPerGraph=2",)),
            "converter_flags: 'minNumOpsPerGraph=2' is no flag. NXP's converter takes fields of its compilationOpts, "
            "for instance --minNumOpsPerGraph=2.",
        ),
    ],
)
def test_options_it_does_not_take(options: CompileOptions, message: str, sdk: Path) -> None:
    fake_sdk.write(sdk, fake_sdk.OURS)
    with pytest.raises(InvalidOptionError) as caught:
        EIQ.convert(GRAPH, options)
    assert str(caught.value) == message


def test_a_target_that_the_sdk_does_not_know(sdk: Path) -> None:
    fake_sdk.write(sdk, fake_sdk.OURS)
    found = sdk / "eiq_neutron_sdk" / "neutron_library_utils.py"
    found.write_text(found.read_text().replace("imxrt700", "imxrt70"))
    with pytest.raises(InvalidOptionError) as caught:
        EIQ.convert(GRAPH, OPTIONS)
    assert str(caught.value) == (
        "eiq: eiq_neutron_sdk knows no target 'imxrt700'; it knows imxrt70, imx95. Did you mean 'imxrt70'?"
    )


def test_an_unknown_converter() -> None:
    with pytest.raises(
        InvalidOptionError, match=r"^converter: 'eig' is unknown; there are open, eiq, driver\. Did you mean 'eiq'\?$"
    ):
        converter.get("eig")
