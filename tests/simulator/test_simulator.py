# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openneutron.device import simulator as binding
from openneutron.device.simulator import Moment, Simulator
from openneutron.errors import MissingToolError
from tests.support import programs


def random_bytes(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, size).astype(np.int8)


def test_trace_reads_every_tensor() -> None:
    x = random_bytes(90)
    seen: list[tuple[int, int, int, np.ndarray]] = []

    def trace(moment: Moment) -> None:
        seen.append((moment.operator, moment.kernel, moment.cycles, moment.output()))

    with Simulator(programs.inverted_twice()) as simulator:
        simulator.run([x], trace)
        simulator.run([x])
    assert [entry[:3] for entry in seen] == [(0, 12, 100), (1, 12, 50)]
    assert np.array_equal(seen[0][3].ravel(), ~x)
    assert np.array_equal(seen[1][3].ravel(), x)


def test_trace_may_raise() -> None:
    def trace(moment: Moment) -> None:
        raise KeyError(moment.operator)

    with Simulator(programs.inverted_twice()) as simulator:
        with pytest.raises(KeyError, match="0"):
            simulator.run([random_bytes(90)], trace)
        simulator.run([random_bytes(90)])


def test_profile_has_modelled_cycles() -> None:
    with Simulator(programs.inverted_twice(profile_size=48)) as simulator:
        events = simulator.profile([random_bytes(90)])
    assert [(e.kernel, e.operator, e.start_cycles, e.stop_cycles) for e in events] == [
        (12, 0, 0, 100),
        (12, 1, 100, 150),
    ]


def test_profile_that_is_too_small_is_cut() -> None:
    with Simulator(programs.inverted_twice(profile_size=20)) as simulator:
        assert len(simulator.profile([random_bytes(90)])) == 1


def test_scratch_used() -> None:
    with Simulator(programs.inverted_twice()) as simulator:
        assert simulator.microcode.scratch_size == 112
        assert simulator.scratch_used([random_bytes(90)]) == 106


def test_wrong_inputs() -> None:
    with Simulator(programs.inverted_twice()) as simulator:
        with pytest.raises(ValueError, match=r"^simulator: 2 inputs were given; the program has 1\.$"):
            simulator.run([random_bytes(90)] * 2)
        with pytest.raises(ValueError, match=r"^simulator: input 0 has 91 bytes; the program takes 90\.$"):
            simulator.run([random_bytes(91)])
    with pytest.raises(ValueError, match=r"^simulator: it is closed; make a new one\.$"):
        simulator.run([random_bytes(90)])


def test_a_moment_reads_windows_and_rings() -> None:
    """Buffers are read as they lie: the rows of a ring, the columns and channels held, any pitches."""
    x = random_bytes(2 * 8 * 8)
    read: list[np.ndarray] = []

    def trace(moment: Moment) -> None:
        shape = (1, 2, 8, 8)
        part = programs.dense("SCRATCH", 0, shape, 3 * 8 + 2, col0=3, cols_held=4, channel0=2, channels_held=5)
        turned = programs.dense("SCRATCH", 0, (1, 8, 2, 8), row_pitch=8, col_pitch=64)
        ring = programs.dense("SCRATCH", 0, (1, 9, 8, 8), ring=2)
        read.extend(moment.read(buffer) for buffer in (part, turned, ring))

    with Simulator(programs.through_scratch()) as simulator:
        simulator.run([x], trace)
    whole = x.reshape(1, 2, 8, 8)
    assert np.array_equal(read[0], whole[:, :, 3:7, 2:7])
    assert np.array_equal(read[1], whole.transpose(0, 2, 1, 3))
    assert np.array_equal(read[2], whole)


def test_inputs_of_any_dtype_and_layout() -> None:
    x = random_bytes(90)
    with Simulator(programs.inverted_twice()) as simulator:
        (from_words,) = simulator.run([x.view(np.int16)])
        (from_reversed,) = simulator.run([x[::-1]])
    assert np.array_equal(from_words.view(np.int8), x)
    assert np.array_equal(from_reversed.view(np.int8), x[::-1])


def test_runs_do_not_share_outputs() -> None:
    with Simulator(programs.inverted_twice()) as simulator:
        (first,) = simulator.run([random_bytes(90)])
        simulator.run([random_bytes(90, 1)])
    assert np.array_equal(first.view(np.int8), random_bytes(90))


def test_library_that_was_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binding, "LIBRARY", tmp_path / "libneutron.so")
    binding.library.cache_clear()
    try:
        with pytest.raises(MissingToolError, match=r"libneutron\.so does not exist\. Install the package"):
            binding.library()
        (tmp_path / "libneutron.so").write_bytes(b"no library")
        with pytest.raises(MissingToolError, match=r"libneutron\.so can't be loaded: .*\. Install the package again\."):
            binding.library()
    finally:
        binding.library.cache_clear()


def test_imports_numpy_alone() -> None:
    """The simulator works where nothing but numpy is installed."""
    code = (
        "import sys, openneutron.device.simulator; "
        "print([name for name in ('torch', 'executorch', 'ai_edge_litert', 'flatbuffers', 'ortools') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_timed_run_has_a_time_for_each_kernel_call() -> None:
    x = random_bytes(90)
    with Simulator(programs.inverted_twice()) as simulator:
        outputs, calls = simulator.timed([x])
        (want,) = simulator.run([x])
    np.testing.assert_array_equal(outputs[0], want)
    assert [call.operator for call in calls] == [0, 1]
    assert all(call.nanoseconds > 0 for call in calls)
