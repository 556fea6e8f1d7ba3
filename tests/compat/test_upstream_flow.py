# SPDX-License-Identifier: BSD-3-Clause
"""ExecuTorch's own NXP backend, unmodified, compiles with this project's compiler, and what it makes runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from openneutron import litert
from openneutron.device import pte
from openneutron.device.mixed import FileSimulator
from openneutron.isa import decode, kernel_selection, payload
from openneutron.isa.microcode import calls
from openneutron.pytorch.run.runner import Runner
from tests.support.oracle import random_inputs, reference_outputs

SCRIPT = Path(__file__).parent / "upstream_flow.py"


def test_cifarnet(tmp_path: Path) -> None:
    """Its converter runs in a child process, which has its parent's modules (fork) or only its search path (spawn)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    pure = min(tmp_path.glob("tag*_pure.et.tflite"))
    converted = pure.with_name(pure.name.replace("pure", "neutron"))
    assert (tmp_path / "spawned.tflite").read_bytes() == converted.read_bytes()
    graph = litert.read(pure).graph
    assert [node.op for node in litert.read(converted).graph.nodes] == ["CUSTOM NeutronGraph"]
    for seed in range(3):
        inputs = random_inputs(graph, seed)
        for got, want in zip(
            FileSimulator(converted).run(inputs), reference_outputs(pure.read_bytes(), inputs), strict=True
        ):
            np.testing.assert_array_equal(got, want)

    buffer = (tmp_path / "model.pte").read_bytes()
    (call,) = pte.delegates(buffer)
    assert call.backend == "NeutronBackend"
    again, ours = (pte.delegates((tmp_path / f"{name}.pte").read_bytes()) for name in ("again", "ours"))
    assert [item.payload for item in again] == [call.payload]
    assert payload.parse(ours[0].payload).program.header["profile_size"] == 0
    # The backend makes its map of debug handles of the converter's log: each kernel call, and the end of a run's events.
    (logged,) = re.findall(r"Neutron to Edge map was created: (.*)", (tmp_path / "backend.log").read_text())
    handles = ast.literal_eval(logged)
    events = len(calls(decode(payload.parse(call.payload).program)))
    assert list(handles) == list(range(events + 1)) and handles[events] == ()
    assert len([entry for entry in handles.values() if entry]) > events / 2
    runner = Runner("model.pte", buffer)
    for given, want in zip(np.load(tmp_path / "inputs.npy"), np.load(tmp_path / "outputs.npy"), strict=True):
        (got,) = runner.run((torch.from_numpy(given),))
        assert np.abs(got.numpy() - want).max() <= 1 / 256

    selection = min(tmp_path.glob("_kernel_selection_tag*.c"))
    assert "conv_2d_s8" in kernel_selection.parse("it", selection.read_text()).kernels
