# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron run`` and ``disasm`` of .pte files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from openneutron.device import pte
from tests.cli.conftest import Command
from tests.support import programs
from tests.support.delegate_calls import SHAPE, Inverts, method, plain, random_bytes
from tests.support.foreign import foreign_program, refusal


@pytest.fixture(scope="module")
def inverting() -> bytes:
    """A .pte whose one delegate call computes -1 - x, int8."""
    return method(plain(programs.through_scratch()).compose(), (random_bytes(SHAPE),)).pte


@pytest.fixture
def file(inverting: bytes, folder: Path) -> str:
    (folder / "inverts.pte").write_bytes(inverting)
    return "inverts.pte"


def test_it_runs_on_the_simulated_npu(openneutron: Command, file: str, folder: Path) -> None:
    x = random_bytes(SHAPE, 3).numpy()
    np.save(folder / "x.npy", x)
    ended = openneutron("run", file, "--input", "x.npy", "--output", "out")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == "inverts.pte: 1 delegate on the simulated NPU"
    np.testing.assert_array_equal(np.load(folder / "out" / "output0.npy"), ~x)


def test_two_threads_compute_it(openneutron: Command, file: str) -> None:
    one, two = (openneutron("run", file, "--random", "1", "--json", "--threads", count).out for count in ("1", "2"))
    assert one == two


def test_without_inputs_it_says_what_is_needed(refused: Callable[..., str], file: str) -> None:
    assert refused("run", file) == (
        "'inverts.pte' takes 1 input (0: argument 0 int8[1,2,8,8]); 0 given. Give each with --input X.npy, in this order, "
        "or try --random SEED."
    )


def test_its_programs_are_listed(openneutron: Command, file: str) -> None:
    ended = openneutron("disasm", file)
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "; forward, delegate 0"
    assert "  CALL operator=0 cycles=10" in ended.out.splitlines()


def test_microcode_of_nxps_converter(refused: Callable[..., str], inverting: bytes, folder: Path) -> None:
    """As the public facts have it, in the place of ours: every command says whose it is."""
    program = foreign_program(1, 0)
    ours = programs.through_scratch().microcode
    begin = program.microcode[:24] + ours[24:32] + program.microcode[32:36] + ours[36:60]
    (folder / "nxp.pte").write_bytes(inverting.replace(ours, begin + program.microcode[60 : len(ours)]))
    for command in (("run",), ("disasm",), ("kernels", "list")):
        assert refused(*command, "nxp.pte") == f"'nxp.pte' (forward, delegate 0): {refusal(program)}"


def test_a_truncated_or_corrupt_file_is_refused(refused: Callable[..., str], inverting: bytes, folder: Path) -> None:
    (folder / "cut.pte").write_bytes(inverting[:-100])
    for command in ("run", "disasm"):
        assert refused(command, "cut.pte") == (
            "'cut.pte' is damaged: its flatbuffer can't be read. Compile the model again."
        )
    corrupt = bytearray(inverting)
    corrupt[corrupt.index(b"nMCd") + 150] ^= 0xFF
    (folder / "corrupt.pte").write_bytes(corrupt)
    for command in ("run", "disasm"):
        assert refused(command, "corrupt.pte") == (
            "'corrupt.pte' (forward, delegate 0): program: the microcode's checksum is wrong. The file is corrupt."
        )


def test_a_file_that_executorch_refuses_says_why(refused: Callable[..., str], inverting: bytes, folder: Path) -> None:
    """A method of another name, with the same length: everything is sound but the name."""
    (folder / "other.pte").write_bytes(inverting.replace(b"forward", b"outward"))
    assert refused("run", "other.pte", "--random", "0") == (
        "'other.pte': it has no method 'forward'; its methods: outward."
    )


def test_a_file_of_another_backend_has_no_programs_of_ours(
    refused: Callable[..., str], inverting: bytes, folder: Path
) -> None:
    (folder / "foreign.pte").write_bytes(inverting.replace(pte.BACKEND_ID.encode(), b"NeutrinoBackend"[:14]))
    assert refused("disasm", "foreign.pte") == (
        "'foreign.pte' has no NeutronBackend delegate in it; its delegates: NeutrinoBacken."
    )
    assert refused("run", "foreign.pte", "--random", "0") == (
        "'foreign.pte': ExecuTorch can't load it: Failed to load method forward, error: 0x:20 "
        "(Backend NeutrinoBacken is not registered). Compile the model again, for the backends that are here."
    )


def test_a_program_without_delegates_runs_on_the_cpu(openneutron: Command, folder: Path) -> None:
    from executorch.exir import to_edge

    exported = torch.export.export(Inverts(), (random_bytes((2, 3)),), strict=False)
    (folder / "plain.pte").write_bytes(to_edge(exported).to_executorch().buffer)
    ended = openneutron("run", "plain.pte", "--random", "1", "--output", "out")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[0] == "plain.pte: no NeutronBackend delegate in it: all of it ran on the CPU"
