# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron run`` of a .tflite."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from openneutron.device.simulator import THREADS
from openneutron.litert.interpret import interpret
from tests.cli.conftest import Command
from tests.support.litert_files import mixed_file


def test_outputs_are_the_stock_files_outputs(openneutron: Command, folder: Path) -> None:
    openneutron("compile", "mixed.tflite")
    x = np.random.default_rng(5).standard_normal((1, 8, 8, 4)).astype(np.float32)
    np.save(folder / "x.npy", x)
    ended = openneutron("run", "mixed_neutron.tflite", "--input", "x.npy", "--output", "out")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == "mixed_neutron.tflite: 2 NeutronGraphs on the simulated NPU"
    for index, want in enumerate(interpret(mixed_file(), [x])):
        np.testing.assert_array_equal(np.load(folder / "out" / f"output{index}.npy"), want)


def test_random_inputs_are_the_same_for_a_seed(openneutron: Command) -> None:
    openneutron("compile", "mixed.tflite")
    first, again, other = (
        json.loads(openneutron("run", "mixed_neutron.tflite", "--random", seed, "--json").out)["outputs"]
        for seed in ("1", "1", "2")
    )
    assert first == again != other
    assert [(row["dtype"], row["shape"]) for row in first] == [("float32", [1, 8, 8, 3]), ("int8", [1, 4, 4, 8])]


def test_a_file_without_a_neutron_graph_says_so(openneutron: Command) -> None:
    ended = openneutron("run", "float.tflite", "--random", "0")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "float.tflite: no NeutronGraph in it: all of it ran on the CPU"


def test_threads_change_no_output(openneutron: Command, refused: Callable[..., str]) -> None:
    openneutron("compile", "mixed.tflite")
    one, two = (
        json.loads(openneutron("run", "mixed_neutron.tflite", "--random", "1", "--threads", count, "--json").out)[
            "outputs"
        ]
        for count in ("1", "2")
    )
    assert one == two
    assert THREADS not in os.environ
    assert refused("run", "mixed_neutron.tflite", "--random", "1", "--threads", "17") == (
        "threads: it is '17'; it is a number of threads from 1 to 16."
    )
