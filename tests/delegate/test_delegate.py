# SPDX-License-Identifier: BSD-3-Clause
"""Delegate calls through ExecuTorch's own runtime: hand-made programs against the simulator and PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.devtools import Inspector
from executorch.devtools.inspector import TimeScale
from executorch.runtime import Runtime

from openneutron.device.simulator import Simulator
from openneutron.errors import MissingToolError
from openneutron.isa import with_checksum
from openneutron.isa.payload import Format, Payload
from openneutron.pytorch.run import delegate
from tests.support import programs
from tests.support.delegate_calls import SHAPE, method, plain, random_bytes
from tests.support.foreign import foreign_payload

INVALID_PROGRAM, INVALID_ARGUMENT = "error: 0x:23", "error 0x12"


@pytest.mark.parametrize(
    "make", [programs.inverted_twice, programs.through_scratch, programs.fetched, programs.striped]
)
def test_same_as_the_simulator(make: Callable[[], Any]) -> None:
    program = make()
    with Simulator(program) as simulator:
        x = random_bytes((simulator.microcode.inputs[0]["size"],))
        (wanted,) = simulator.run([x.numpy()])
    (got,) = method(plain(program).compose(), (x,)).execute([x])
    assert got.numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("delegate_alignment", [4, 16])
@pytest.mark.parametrize("extracted", [False, True])
def test_payload_may_lie_anywhere(delegate_alignment: int, extracted: bool) -> None:
    x = random_bytes(SHAPE)
    payload = plain(programs.through_scratch()).compose()
    loaded = method(payload, (x,), delegate_alignment=delegate_alignment, extract_delegate_segments=extracted)
    assert (loaded.pte.index(payload) % 16 == 0) == (extracted or delegate_alignment == 16)
    for seed in range(3):
        x = random_bytes(SHAPE, seed)
        assert torch.equal(loaded.execute([x])[0], ~x)


def test_maps_name_arguments_and_outputs() -> None:
    payload = Payload(
        program=programs.two_ports(),
        input_formats=(Format.CONTIGUOUS,) * 2,
        output_formats=(Format.CONTIGUOUS,) * 2,
        input_map=(2, 0),
        output_map=(1, 0),
        arguments=3,
    )

    class Chooses(torch.nn.Module):
        def forward(self, a: torch.Tensor, unused: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return ~a, ~b

    inputs = (random_bytes((1, 4, 4, 3)), random_bytes((5,)), random_bytes((1, 3, 2, 5)))
    first, second = method(payload.compose(), inputs, Chooses()).execute(list(inputs))
    assert torch.equal(first, ~inputs[0])
    assert torch.equal(second, ~inputs[2])


class ChannelGradient(torch.nn.Module):
    """Not the same in another order: adds the channel's number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(3, dtype=torch.int8).reshape(1, 3, 1, 1)


def gradient_program() -> Any:
    """The same on NHWC bytes, 1 x 4 x 5 x 3: a table for each channel, which the driver finds in the weights."""
    tables = b"".join(bytes((value + k) & 0xFF for value in [*range(128, 256), *range(128)]) for k in range(3))
    size = 4 * 5 * 3
    ports = tuple(
        programs.dense(kind, 0, (1, 4, 5, 3), k, channels=1, channels_held=1)
        for kind in ("INPUT", "OUTPUT")
        for k in range(3)
    )
    operators = tuple(
        programs.kernel("lookup_s8", input=k, output=3 + k, table_base=programs.base("WEIGHTS"), table_offset=256 * k)
        for k in range(3)
    )
    return programs.program(
        inputs=(programs.binding("INPUT", 0, size),),
        outputs=(programs.binding("OUTPUT", 0, size),),
        buffers=ports,
        operators=operators,
        code=(*(programs.call(k) for k in range(3)), programs.END),
        weights=tables,
    )


@pytest.mark.parametrize("given", [torch.contiguous_format, torch.channels_last])
def test_channels_last(given: torch.memory_format) -> None:
    """A channels-last tensor passes as it is, a contiguous one is transposed; outputs follow the inputs here."""
    payload = plain(gradient_program(), input_formats=(Format.CHANNELS_LAST,), output_formats=(Format.CHANNELS_LAST,))
    x = (random_bytes((1, 3, 4, 5)) // 2).to(memory_format=given)
    (got,) = method(payload.compose(), (x,), ChannelGradient()).execute([x])
    assert torch.equal(got, ChannelGradient()(x))


def test_one_channel_needs_no_transposition() -> None:
    """Both orders are the same bytes, and a tensor may state either."""
    payload = plain(programs.through_scratch())
    for flag in (Format.CONTIGUOUS, Format.CHANNELS_LAST):
        x = random_bytes((1, 1, 16, 8)).to(memory_format=torch.channels_last)
        both = dataclasses.replace(payload, input_formats=(flag,), output_formats=(flag,))
        (got,) = method(both.compose(), (x,)).execute([x])
        assert torch.equal(got, ~x)


def test_channels_last_where_the_program_wants_contiguous(capfd: pytest.CaptureFixture[str]) -> None:
    x = random_bytes(SHAPE).to(memory_format=torch.channels_last)
    loaded = method(plain(programs.through_scratch()).compose(), (x,))
    with pytest.raises(RuntimeError, match=INVALID_ARGUMENT):
        loaded.execute([x])
    assert "input 0 has a dim order that is neither contiguous nor the same in memory" in capfd.readouterr().err


def test_wider_elements_are_transposed_whole() -> None:
    """Two bytes an element: the program inverts bytes, which commutes with any order of elements."""
    payload = plain(
        programs.through_scratch(), input_formats=(Format.CHANNELS_LAST,), output_formats=(Format.CHANNELS_LAST,)
    )
    x = random_bytes((128,)).view(torch.int16).reshape(2, 2, 4, 4)
    (got,) = method(payload.compose(), (x,)).execute([x])
    assert torch.equal(got, ~x)


@pytest.mark.parametrize(
    ("payload", "inputs", "message"),
    [
        (
            plain(programs.through_scratch()),
            (random_bytes((1, 2, 8, 9)),),
            "input 0 has 144 bytes; the program has 128. Call the method with the dtypes and shapes it was exported with.",
        ),
        (
            plain(programs.through_scratch()),
            (random_bytes(SHAPE).int(),),
            "input 0 has 512 bytes; the program has 128.",
        ),
        (
            plain(programs.through_scratch(), arguments=2),
            (random_bytes(SHAPE),),
            "the call has 2 arguments; the program was compiled for 2 inputs and 1 outputs.",
        ),
        (
            plain(programs.through_scratch(), input_formats=(Format.CHANNELS_LAST,)),
            (random_bytes((2, 64)),),
            "input 0 is channels-last and has 2 dimensions; that takes at least 3.",
        ),
    ],
)
def test_call_that_does_not_fit(
    payload: Payload, inputs: tuple[torch.Tensor, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded = method(payload.compose(), inputs)
    with pytest.raises(RuntimeError, match=INVALID_ARGUMENT):
        loaded.execute(list(inputs))
    assert message in capfd.readouterr().err


def _damaged(at: int, value: int) -> bytes:
    blob = bytearray(plain(programs.through_scratch()).compose())
    blob[at] = value
    return bytes(blob)


def _of_another_kernel(identifier: int) -> bytes:
    program = programs.through_scratch()
    blob = bytearray(program.microcode)
    table = 4 * program.header["operators_offset"]
    at = 4 * int.from_bytes(blob[table : table + 4], "little")
    blob[at : at + 2] = identifier.to_bytes(2, "little")
    return plain(with_checksum(dataclasses.replace(program, microcode=bytes(blob)))).compose()


def _without_end_of_weights() -> bytes:
    program = programs.through_scratch()
    return plain(program).compose()[: -len(program.kernels) - 1]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "the payload is 0 bytes; with its header it has at least 4. The file is truncated or corrupt."),
        (b"\0" * 64, "the payload is 64 bytes; with its microcode's header it has at least 144."),
        (b"\0" * 256, "the payload's version is 0; this backend reads version 1."),
        (_damaged(3, 4), "the payload gives input 0 format 4; 0 to 3 are known."),
        (_damaged(4, 2), "the payload gives output 0 format 2; 0 to 1 are known."),
        (_damaged(3, 3), "the payload's input 0 counts the elements of an input that it does not have."),
        (_damaged(5, 1), "the payload maps input 0 to argument 1; there are 1."),
        (_damaged(16, 0), "the payload does not contain Neutron microcode."),
        (_damaged(16 + 9 * 4, 0xFF), "the microcode's checksum is wrong; the file is corrupt."),
        (
            foreign_payload(0, 0),
            "NeutronBackend: this is microcode of another compiler, such as NXP's eIQ Neutron converter",
        ),
        (
            foreign_payload(1, 0),
            "NeutronBackend: this is microcode of another compiler, such as NXP's eIQ Neutron converter",
        ),
        (
            _of_another_kernel(300),
            "validation of the program failed with 0x12c0613: kernel of an unknown name (300) is not registered: link the "
            "kernel selection of this model.",
        ),
        (_without_end_of_weights(), "with its weights it has at least"),
        (
            _damaged(len(plain(programs.through_scratch()).compose()) - len(programs.through_scratch().kernels) - 1, 1),
            "the weights' checksum is wrong. The file is corrupt.",
        ),
    ],
)
def test_damaged_payload(payload: bytes, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=INVALID_PROGRAM):
        method(payload, (random_bytes(SHAPE),))
    assert message in capfd.readouterr().err


def test_second_load_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    path = delegate.load()
    monkeypatch.setattr(delegate, "_compile", None)
    assert delegate.load() == path
    assert delegate.build(delegate.executorch_package()) == path


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingToolError, match=r"there is no C\+\+ compiler \(c\+\+, g\+\+, clang\+\+\)"):
        delegate.build(delegate.executorch_package())


def test_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its words are shown, and nothing is left in the cache."""
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'error: no such header' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingToolError, match="error: no such header"):
        delegate.build(delegate.executorch_package())
    assert list((tmp_path / "cache" / "openneutron").iterdir()) == []


def test_read_only_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(MissingToolError, match="Set XDG_CACHE_HOME to a folder that can"):
        delegate.build(delegate.executorch_package())


def test_profile_reaches_the_inspector(tmp_path: Path) -> None:
    """One event for each kernel call, in order, with its modelled cycles as ticks."""
    x = random_bytes((90,))
    loaded = method(plain(programs.inverted_twice(profile_size=48)).compose(), (x,))
    program = Runtime.get().load_program(loaded.pte, enable_etdump=True)
    program.load_method("forward").execute([x])
    program.write_etdump_result_to_file(str(tmp_path / "etdump"), str(tmp_path / "debug"))
    inspector = Inspector(
        str(tmp_path / "etdump"), source_time_scale=TimeScale.CYCLES, target_time_scale=TimeScale.CYCLES
    )
    events = [event for block in inspector.event_blocks for event in block.events if event.is_delegated_op]
    assert [(event.delegate_debug_identifier, event.perf_data.raw) for event in events] == [(0, [100]), (1, [50])]
    assert [event.delegate_debug_metadatas for event in events] == [[b"\1"], [b"\2"]]
