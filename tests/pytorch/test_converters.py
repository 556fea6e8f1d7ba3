# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models through either converter, and the options that reach it."""

from __future__ import annotations

import collections
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import nn

import openneutron
from openneutron.device import pte
from openneutron.device.converter import eiq
from openneutron.device.converter.eiq import EiqConverter
from openneutron.errors import BudgetError, ConverterError, InvalidModelError, InvalidOptionError, MissingToolError
from openneutron.ir import Graph
from openneutron.isa import decode as decode_program
from openneutron.isa import payload
from openneutron.litert import read
from openneutron.litert.neutron_graph import find
from openneutron.options import CompileOptions, OutputOptions
from openneutron.pytorch import NeutronQuantizer
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec, decode_specs
from openneutron.pytorch.nxp_backend import NeutronCompileSpecBuilder, generate_neutron_compile_spec
from tests.pytorch.small_models import IMAGE, Around
from tests.support import fake_sdk

EIQ = CompileOptions(converter="eiq")
INPUTS = (torch.linspace(-2, 2, 8 * 12 * 12).reshape(IMAGE),)


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    return Around(lambda m, x: (F.linear(F.relu(m.conv(x)).flatten(1), m.columns), m.point(x))).eval()


def compiled(**options: Any) -> Any:
    return openneutron.compile(model(), INPUTS, calibration=[INPUTS], **options)


def test_eiq_and_open_with_the_same_compiler_behind_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for NXP's SDK calls this project's compiler; so the payloads are the same but for names, and the result runs.

    Names differ: this project's compiler gets operators of the ATen program, and another converter those of the Edge program."""
    folder = tmp_path / "sdk"
    fake_sdk.write(folder, fake_sdk.OURS)
    monkeypatch.syspath_prepend(str(folder))
    ours, theirs = compiled(), compiled(options=EIQ, outputs=OutputOptions(intermediates_dir=tmp_path))
    payloads = [[item.payload for item in pte.delegates(made.buffer)] for made in (ours, theirs)]
    programs = [[payload.parse(item).program for item in items] for items in payloads]
    nameless = [[(replace(decode_program(item), names=()), item.weights) for item in items] for items in programs]
    assert nameless[0] == nameless[1]
    for got, want in zip(theirs.run(*INPUTS), ours.run(*INPUTS), strict=True):
        assert torch.equal(got, want)
    assert (theirs.partitions, ours.converted) == ((), ())
    (part,) = theirs.converted
    (found,) = find(read(tmp_path / f"{part.name}_neutron.et.tflite").model)
    assert found.program == part.conversion.program
    sizes = [len(blob) for blob in (found.program.microcode, found.program.weights, found.program.kernels)]
    (row,) = theirs.report.to_dict()["converted"]
    assert list(row.values()) == [part.name, *sizes]
    assert "1 partition, for the chip alone; costs are not known here" in theirs.summary()


def test_norms_become_operators_of_litert_for_eiq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT has no operator for a layer norm. A partition for NXP's converter has means, differences, tables and products instead."""
    fake_sdk.write(tmp_path / "sdk", fake_sdk.OURS)
    monkeypatch.syspath_prepend(str(tmp_path / "sdk"))
    graphs = []

    def convert(_self: object, graph: Graph, *_others: object) -> None:
        graphs.append(graph)
        raise ConverterError("the graph is known now", "", 0)

    monkeypatch.setattr(EiqConverter, "convert", convert)
    norms = nn.Sequential(nn.LayerNorm(12), nn.RMSNorm(12), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8)).eval()
    with pytest.raises(ConverterError, match="the graph is known now"):
        openneutron.compile(norms, INPUTS, calibration=[INPUTS], options=EIQ)
    (graph,) = graphs
    operators = collections.Counter(node.op for node in graph.nodes)
    assert not {"layer_norm", "group_norm"} & operators.keys()
    # One of the seven means is a depthwise convolution, and the scales of three norms are.
    assert (operators["sub"], operators["mean"], operators["depthwise_conv_2d"]) == (3, 6, 4)
    whole = openneutron.compile(norms, INPUTS, calibration=[INPUTS])
    assert [node.op for node in whole.partitions[0].graph.nodes].count("layer_norm") == 2


def test_a_quantizer_for_an_unknown_converter() -> None:
    with pytest.raises(InvalidOptionError, match=r"^converter: "):
        NeutronQuantizer(converter="vela")


@pytest.mark.parametrize(
    ("body", "calls", "words"),
    [
        (fake_sdk.REFUSES_BY_NAME, 4, "ValueError: no kernel takes aten_linear_default"),
        (fake_sdk.DIES, 6, "it was ended by signal 11 (SIGSEGV)"),
        (fake_sdk.LEAVES, 3, "it leaves the operator outside of the NeutronGraph"),
        (fake_sdk.HANGS, 6, "it did not end within 300 s"),
    ],
)
def test_an_operator_that_it_refuses_runs_on_the_cpu(
    body: str, calls: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sdk.write(tmp_path, body.replace("RELU", "FULLY_CONNECTED").replace('"relu"', '"fully_connected"'))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(eiq, "_run", fake_sdk.forked)
    made = compiled(options=EIQ)
    (left,) = made.delegation.on_cpu
    assert (left.operator, left.reason) == ("aten.linear", f"NXP's converter refuses it: {words}")
    assert fake_sdk.calls(tmp_path) == calls
    (linear, point), (wanted, other) = made.run(*INPUTS), compiled().run(*INPUTS)
    assert torch.equal(point, other)
    torch.testing.assert_close(linear, wanted, atol=0.0073, rtol=0)  # a step of the output


def test_a_converter_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sdk.write(tmp_path, fake_sdk.CRASHES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(eiq, "_run", fake_sdk.forked)
    with pytest.raises(
        InvalidModelError,
        match=r"^'model': none of its 4 operators can run on the NPU\. For one, conv2d .* 'conv' stays on the CPU: NXP's converter "
        r"refuses it: it was ended by signal 11 \(SIGSEGV\)\.$",
    ):
        compiled(options=EIQ)


def test_microcode_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sdk.write(tmp_path, fake_sdk.OTHER_VERSION)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(eiq, "_run", fake_sdk.forked)
    with pytest.raises(
        ConverterError, match=r"that no published driver reads: its header has the form of version 0, and its operator"
    ):
        compiled(options=EIQ)
    assert fake_sdk.calls(tmp_path) == 1


def test_without_the_sdk_nothing_is_calibrated() -> None:
    def never() -> Any:
        raise AssertionError
        yield

    with pytest.raises(MissingToolError, match=r"^eiq: NXP's package eiq_neutron_sdk is not installed for "):
        openneutron.compile(model(), INPUTS, calibration=never(), options=EIQ)
    with pytest.raises(MissingToolError):
        generate_neutron_compile_spec("imxrt700", options=EIQ)


@pytest.mark.parametrize("flags", ["--sram-budget=2 --io-place=arena", ["--sram-budget", "2", "--io-place=arena"]])
def test_extra_flags_reach_the_compiler(flags: str | list[str]) -> None:
    from executorch.exir import to_edge_transform_and_lower

    from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
    from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
    from openneutron.pytorch.quantizer.utils import calibrate_and_quantize

    target = NeutronTargetSpec("imxrt700")
    module = calibrate_and_quantize(torch.export.export(model(), INPUTS), [INPUTS], NeutronQuantizer(target))
    spec = generate_neutron_compile_spec("imxrt700", extra_flags=flags)
    with pytest.raises(BudgetError, match=r"; the budget is 2\.0 KiB \(2048 bytes\)\. "):
        to_edge_transform_and_lower(torch.export.export(module, INPUTS), partitioner=[NeutronPartitioner(spec, target)])


def test_unknown_flags_are_refused_at_once() -> None:
    with pytest.raises(
        InvalidOptionError, match=r"^extra_flags: '--turbo' is not a flag of the compiler; its flags are --"
    ):
        generate_neutron_compile_spec("imxrt700", extra_flags="--turbo")
    with pytest.raises(InvalidOptionError) as caught:
        generate_neutron_compile_spec("imxrt700", extra_flags="--io-place='arena")
    assert str(caught.value) == "extra_flags: '--io-place='arena' can't be split: a quote is not closed."


def flavor_of(caught: pytest.WarningsRecorder) -> None:
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "neutron_converter_flavor: 'SDK_25_09' changes nothing. The release of NXP's converter is that of the installed "
        "eiq_neutron_sdk; whether it compiles, or this project's compiler, is set by options=CompileOptions(converter='eiq')."
    )


def test_what_became_of_the_converters_flavor() -> None:
    with pytest.warns(FutureWarning) as caught:
        spec = generate_neutron_compile_spec("imxrt700", neutron_converter_flavor="SDK_25_09")
    flavor_of(caught)
    assert spec == generate_neutron_compile_spec("imxrt700")
    with pytest.warns(FutureWarning) as caught:
        NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700", neutron_converter_flavor="SDK_25_09")
    flavor_of(caught)
    with pytest.warns(FutureWarning) as caught:
        NeutronTargetSpec("imxrt700", neutron_converter_flavor="SDK_25_09")
    flavor_of(caught)
    with pytest.warns(FutureWarning) as caught:
        assert decode_specs([*spec, CompileSpec("neutron_converter_flavor", b"SDK_25_09")]) == decode_specs(spec)
    flavor_of(caught)


def test_a_system_config_says_that_it_does_nothing() -> None:
    with pytest.warns(UserWarning) as caught:
        generate_neutron_compile_spec("imxrt700", "High_End")
    assert [str(item.message) for item in caught] == [
        "system_config: 'High_End' changes nothing, here as in ExecuTorch's NXP backend; the target says all there is to say "
        "of a chip."
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate_neutron_compile_spec("imxrt700")


def test_the_flavor_as_executorch_1_0_passes_it() -> None:
    """In ExecuTorch 1.0 and 1.1 the flavor is the second positional argument."""
    spec = generate_neutron_compile_spec(
        "imxrt700", extra_flags="--effort=high", operators_not_to_delegate=["aten::mm"]
    )
    with pytest.warns(FutureWarning) as caught:
        made = (
            NeutronCompileSpecBuilder()
            .neutron_compile_spec("imxrt700", "SDK_25_09", "--effort=high", ["aten::mm"])
            .build()
        )
    flavor_of(caught)
    assert made == spec
    with pytest.warns(FutureWarning) as caught:
        made = generate_neutron_compile_spec(
            "imxrt700", "SDK_25_09", extra_flags="--effort=high", operators_not_to_delegate=["aten::mm"]
        )
    flavor_of(caught)
    assert made == spec
    with pytest.warns(FutureWarning) as caught:
        NeutronTargetSpec("imxrt700", "SDK_25_09")
    flavor_of(caught)
    folder = NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700", "./SDK_25_09").build()
    assert decode_specs(folder).intermediates_dir == "./SDK_25_09"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["aten::mm"],
            "intermediates_dir: it is ['aten::mm']; it is the path of a folder. Pass operators as operators_not_to_delegate=..., "
            "which ExecuTorch before 1.4 had in this position.",
        ),
        (
            "--effort=high",
            "intermediates_dir: '--effort=high' is a flag, and it is the path of a folder. Pass flags as extra_flags=..., which "
            "ExecuTorch before 1.4 had in this position.",
        ),
    ],
)
def test_positional_arguments_of_earlier_releases_are_refused_where_their_order_differs(given: Any, said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        generate_neutron_compile_spec("imxrt700", None, None, given)
    assert str(caught.value) == said


def test_flags_of_nxps_converter_with_this_projects_compiler() -> None:
    flags = "--minNumOpsPerGraph=2 --effort high --excludeGraphPasses A,B --fetchConstantsToSRAM --useProfiling=false --newField"
    with pytest.warns(UserWarning) as caught:
        spec = generate_neutron_compile_spec("imxrt700", extra_flags=flags)
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "extra_flags: --minNumOpsPerGraph, --excludeGraphPasses, --newField had no effect: this project's compiler has no such "
        "option of NXP's converter. CompileOptions(converter='eiq') selects NXP's converter."
    )
    assert spec == generate_neutron_compile_spec("imxrt700", extra_flags="--effort=high", fetch_constants_to_sram=True)
    with pytest.raises(InvalidOptionError, match=r"Did you mean '--sram-budget'\?$"):
        generate_neutron_compile_spec("imxrt700", extra_flags="--sramBudget=64")
