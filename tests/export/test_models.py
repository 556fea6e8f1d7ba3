# SPDX-License-Identifier: BSD-3-Clause
"""Models of other forms than one image in and one row out: their bundles' examples check themselves on this computer."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.lowered_backend_module import LoweredBackendModule

import openneutron
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.simulator import Simulator
from openneutron.errors import InvalidModelError
from openneutron.features.export.bundle import export_bundle
from openneutron.features.export.deployment import Place, Where
from openneutron.features.export.read import read_pte
from openneutron.features.profile.profile import read_device_csv
from openneutron.ir import Node
from openneutron.isa.payload import Format, Payload
from scripts.published_networks import cifarnet
from tests.export.bundles import SANITIZERS, checked_on_the_host, constant_bytes, host_program, piped
from tests.support import oracle, programs, random_images
from tests.support.delegate_calls import SHAPE, UNCHECKED, Inverts
from tests.support.litert_files import graph_file

PROFILE = Path(__file__).parent / "profile_main.c"
NO_INPUTS = Path(__file__).parent / "no_inputs_main.c"


def lowered(form: Format) -> LoweredBackendModule:
    """A delegate call that inverts all bits."""
    exported = torch.export.export(Inverts(), (torch.zeros(SHAPE, dtype=torch.int8),), strict=False)
    payload = Payload(programs.through_scratch(), (form,), (form,), (0,), (0,), 1)
    return LoweredBackendModule(
        edge_program=to_edge(exported, compile_config=UNCHECKED).exported_program(),
        backend_id="NeutronBackend",
        processed_bytes=payload.compose(),
        compile_specs=[],
    )


class SideBySide(torch.nn.Module):
    """Two delegate calls that take one input."""

    def __init__(self, *forms: Format) -> None:
        super().__init__()
        self.first, self.second = (lowered(form) for form in forms)

    def forward(self, x: torch.Tensor) -> Any:
        return self.first(x)[0], self.second(x)[0]


class InTurn(torch.nn.Module):
    """Three delegate calls behind each other; ``every``: the second one's result is an output too."""

    def __init__(self, every: bool, *forms: Format) -> None:
        super().__init__()
        self.first, self.second, self.third = (lowered(form) for form in forms)
        self.every = every

    def forward(self, x: torch.Tensor) -> Any:
        (first,) = self.first(x)
        (second,) = self.second(first)
        (third,) = self.third(second)
        return (third, second) if self.every else (third,)


def written(model: torch.nn.Module) -> bytes:
    inputs = (torch.zeros(SHAPE, dtype=torch.int8),)
    edge = to_edge(torch.export.export(model, inputs, strict=False), compile_config=UNCHECKED)
    return bytes(edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False)).buffer)


def in_turn(every: bool, *forms: Format) -> bytes:
    return written(InTurn(every, *forms))


@pytest.mark.parametrize(("every", "form"), [(False, Format.CONTIGUOUS), (True, Format.CHANNELS_LAST)])
def test_calls_behind_each_other(every: bool, form: Format, tmp_path: Path) -> None:
    path = tmp_path / "turns.pte"
    path.write_bytes(in_turn(every, form, form, form))
    bundle = export_bundle(path, tmp_path / "bundle")
    assert len(bundle.deployments[0].calls) == 3
    assert len(bundle.deployments[0].between) == (1 if every else 2)
    done = checked_on_the_host(tmp_path / "bundle", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("128 of 128 bytes as expected\n") == len(bundle.deployments[0].outputs)
    golden = tmp_path / "bundle" / "example" / "golden.c"
    given, *wanted = (
        constant_bytes(golden, f"openneutron_golden_turns_{name}")
        for name in ("inputs0", "outputs0", *(["outputs1"] if every else []))
    )
    inverted = bytes(byte ^ 0xFF for byte in given)
    assert all(each in (given, inverted) for each in wanted)


def test_calls_that_pass_a_tensor_on_in_two_orders() -> None:
    data = in_turn(False, Format.CONTIGUOUS, Format.CHANNELS_LAST, Format.CHANNELS_LAST)
    with pytest.raises(InvalidModelError) as caught:
        read_pte(data, "turns.pte", "turns")
    assert str(caught.value) == (
        "'turns.pte': two of its programs have a tensor in two memory orders. "
        "Compile the model with use_neutron_for_format_conversion=True."
    )


def test_calls_that_take_an_input_in_two_orders() -> None:
    data = written(SideBySide(Format.CONTIGUOUS, Format.CONTIGUOUS))
    both = read_pte(data, "both.pte", "both")
    assert [call.inputs for call in both.calls] == [(Place(Where.INPUT, 0),)] * 2
    assert [border.model_index for border in both.outputs] == [0, 1]
    with pytest.raises(InvalidModelError) as caught:
        read_pte(written(SideBySide(Format.CONTIGUOUS, Format.CHANNELS_LAST)), "both.pte", "both")
    assert str(caught.value) == (
        "'both.pte': two of its programs have a tensor in two memory orders. "
        "Compile the model with use_neutron_for_format_conversion=True."
    )


class Looks(torch.nn.Module):
    """Indices and a mask in, values out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 8)
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, index: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.fc(self.table(index)).masked_fill(mask, 0.5)


def test_integers_and_truth_values(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sample = (torch.randint(0, 10, (1, 6)), torch.rand(1, 6, 4) > 0.5)
    program = openneutron.compile(
        Looks().eval(), sample, calibration=[sample], name="looks up, a 'name' of \\ \"signs\" */"
    )
    bundle = openneutron.export_bundle(program, tmp_path / "bundle")
    assert [border.dtype for border in bundle.deployments[0].inputs] == ["int64", "bool"]
    done = checked_on_the_host(tmp_path / "bundle", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "looks up, a 'name' of \\ \"signs\" */\noutput0: 24 of 24 bytes as expected\npassed\n"


def test_no_inputs(tmp_path: Path) -> None:
    """A model of constants alone: its C has no array of length 0, and its inputs may be NULL."""
    x = dataclasses.replace(
        oracle.activation("x", (1, 2, 3, 8)), data=np.arange(-24, 24, dtype=np.int8).reshape(1, 2, 3, 8)
    )
    negated = Node("neg", ("x",), ("y",))
    graph = oracle.graph_of([], [negated], [x, oracle.activation("y", x.shape)])
    program = compile_graph(graph, targets.get("imxrt700"), CompileOptions()).program
    (tmp_path / "constants.tflite").write_bytes(graph_file(graph, program))
    bundle = export_bundle(tmp_path / "constants.tflite", tmp_path / "bundle")
    assert not bundle.deployments[0].inputs
    done = checked_on_the_host(tmp_path / "bundle", tmp_path)
    assert (done.returncode, done.stdout) == (0, "constants\ny: 48 of 48 bytes as expected\npassed\n"), done.stderr
    built = host_program(tmp_path / "bundle", tmp_path, NO_INPUTS, sanitizers=SANITIZERS)
    assert piped(built, [], b"") == np.arange(24, -24, -1, dtype=np.int8).tobytes()


def test_a_profile(tmp_path: Path) -> None:
    """A program compiled with profiling reports its kernel calls as on the simulator."""
    graph = cifarnet()
    program = compile_graph(graph, targets.get("imxrt700"), CompileOptions(profile=True)).program
    (tmp_path / "profiled.tflite").write_bytes(graph_file(graph, program))
    bundle = export_bundle(tmp_path / "profiled.tflite", tmp_path / "bundle")
    example = tmp_path / "bundle" / "example"
    built = host_program(tmp_path / "bundle", tmp_path, PROFILE, example / "golden.c")
    with Simulator(program) as simulator:
        events = simulator.profile([np.zeros(border.size_bytes, np.uint8) for border in bundle.deployments[0].inputs])
    wanted = "".join(f"{event.kernel} {event.stop_cycles - event.start_cycles}\n" for event in events)
    assert wanted.count("\n") > 5
    assert piped(built, [], b"").decode() == wanted
    printed = checked_on_the_host(tmp_path / "bundle", tmp_path).stdout
    unit, times = read_device_csv("stdout", printed, [("program", program)])
    assert unit == "modelled cycles"
    assert sum(item.time for item in times.values()) == program.header["cycles_low"]
    assert sorted(times) == [(program.header["microcode_crc"], index) for index in range(len(times))]


def test_the_header_is_cpp_too(tmp_path: Path) -> None:
    path = tmp_path / "turns.pte"
    path.write_bytes(in_turn(False, *[Format.CONTIGUOUS] * 3))
    export_bundle(path, tmp_path / "bundle")
    (tmp_path / "main.cpp").write_text(
        '#include "golden.h"\n#include "board.h"\nint main() { return golden[0].init() != ENONE || selfcheck(); }\n'
    )
    places = (tmp_path / "bundle" / name for name in ("include", "model", "runtime/include", "example"))
    command = ["c++", "-std=c++17", "-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command += [*(f"-I{place}" for place in places), str(tmp_path / "main.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_equal_weights_are_there_once(tmp_path: Path) -> None:
    """Both models check themselves, one after the other in one arena."""
    stock = tmp_path / "stock.tflite"
    stock.write_bytes(litert.write(random_images.chain_graph(3)))
    compiled = openneutron.compile(stock)
    for name in ("one", "two"):
        compiled.save(tmp_path / f"{name}.tflite")
    bundle = export_bundle([tmp_path / "one.tflite", tmp_path / "two.tflite"], tmp_path / "bundle")
    assert bundle.memory["weights"] == compiled.report.weights_bytes
    ended = checked_on_the_host(tmp_path / "bundle", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert all(name in ended.stdout for name in ("one", "two"))
