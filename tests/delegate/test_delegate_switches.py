# SPDX-License-Identifier: BSD-3-Clause
"""The delegate compiled as for a microcontroller: the driver's context from ExecuTorch's allocator, the NPU off between runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from openneutron.device.runtime_sources import runtime_folder
from tests.support import programs
from tests.support.delegate_calls import method, plain, random_bytes
from tests.support.objects import compiled
from tests.support.runtime_builds import RUNTIME, WITHOUT_HEAP, driver_sources, kernel_sources
from tests.support.tools import required

ROOT = Path(__file__).parents[2]

PORT = """
#include "host_port.h"

int power_changes;

static void power(bool on) { power_changes += on ? 1 : 100; }

const NeutronPort *neutron_host_port(void) {
    static const NeutronPort port = {.power = power};
    return &port;
}
"""
"""The host's port with one more callback, which counts: 1 for on, 100 for off."""

RUNS = """
import ctypes, sys
import torch
from pathlib import Path
from executorch.runtime import Runtime
from openneutron.pytorch.run import compile_delegate, delegate
from openneutron.device import simulator as library

library.LIBRARY = delegate.LIBRARY = Path(sys.argv[1])
switches = ("-O0", "-DNO_HEAP_USAGE=1", "-DNEUTRON_NPU_POWER_GATING", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
compile_delegate.FLAGS += switches
delegate.FLAGS = compile_delegate.FLAGS
driver = library.library()
changes = ctypes.c_int.in_dll(driver, "power_changes")
assert changes.value == 1, changes.value
given = torch.load(sys.argv[3])
delegate.load()
program = Runtime.get().load_program(Path(sys.argv[2]).read_bytes())
loaded = program.load_method("forward")
assert driver.neutronSuspend() == 0 and changes.value == 101, changes.value
for runs in (1, 2, 3):
    (got,) = loaded.execute([given])
    assert torch.equal(got, given)
    assert changes.value == 101 * (1 + runs), changes.value
"""


def test_no_heap_and_power_gating(tmp_path: Path) -> None:
    """A driver that can't allocate runs an ExecuTorch program, and each run turns the NPU on and off again."""
    compiler = required("cc", "gcc")
    (tmp_path / "port.c").write_text(PORT)
    host = RUNTIME / "ports" / "host"
    library = tmp_path / "libneutron.so"
    flags = [*WITHOUT_HEAP, f"-I{host}", "-DNO_HEAP_USAGE=1", "-DNEUTRON_THREADS"]
    sources = [*driver_sources(), *kernel_sources(), tmp_path / "port.c"]
    objects = compiled(tmp_path, compiler, flags, sources)
    assert "malloc" not in subprocess.run(["nm", "-u", *objects], capture_output=True, text=True, check=True).stdout
    # The host's threads and its search for a driver take more of POSIX than strict C11 declares.
    ports = [host / f"host_{name}.c" for name in ("threads", "jobs", "products")]
    objects += compiled(tmp_path, compiler, [*flags, "-std=gnu11"], ports)
    subprocess.run([compiler, "-shared", "-Wl,-soname,libneutron.so", *objects, "-o", library], check=True)
    given = random_bytes((1, 6, 5, 3))
    (tmp_path / "net.pte").write_bytes(method(plain(programs.inverted_twice()).compose(), (given,)).pte)
    torch.save(given, tmp_path / "given")
    command = [sys.executable, "-W", "ignore", "-c", RUNS, library, tmp_path / "net.pte", tmp_path / "given"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


QUEUE_RUNS = """
import ctypes, sys
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from openneutron.pytorch.run import compile_delegate, delegate
from openneutron.pytorch.run.method import opened
from openneutron.device.simulator import library

compile_delegate.FLAGS += ("-O0", "-DNEUTRON_QUEUE", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
delegate.FLAGS = compile_delegate.FLAGS
driver = library()
driver.neutron_host_queue_start.restype = ctypes.c_bool
given = list(np.load(sys.argv[1]))
files = [Path(name).read_bytes() for name in sys.argv[2:]]

locked = []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(locked.append)
port = (ctypes.c_void_p * 5)(ctypes.cast(callback, ctypes.c_void_p))
assert driver.neutronSetQueue(ctypes.byref(port)) == 0
assert (opened(files[0], "0.pte").run([given[0]])[0] == given[0]).all()
assert len(locked) == 2, locked  # to add the run, and after it
assert driver.neutronSetQueue(None) == 0

def runs(thread):
    loaded = opened(files[thread % 2], "file.pte")
    return all((loaded.run([given[(thread + run) % 8]])[0] == given[(thread + run) % 8]).all() for run in range(125))

assert driver.neutron_host_queue_start()
with ThreadPoolExecutor(8) as pool:
    assert all(pool.map(runs, range(8)))
driver.neutron_host_queue_stop()
assert driver.neutronSetQueue(None) == 0
print("kept", file=sys.stderr)
"""


def test_eight_threads_share_a_queue(tmp_path: Path) -> None:
    """A delegate of its own in each thread; the runs go through the queue, which a thread of the host library serves."""
    given = [random_bytes((1, 6, 5, 3), seed) for seed in range(8)]
    np.save(tmp_path / "given.npy", np.stack([each.numpy() for each in given]))
    made = {"inverted.pte": programs.inverted_twice(), "striped.pte": programs.striped((1, 6, 5, 3))}
    for name, program in made.items():
        (tmp_path / name).write_bytes(method(plain(program).compose(), (given[0],)).pte)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUEUE_RUNS, tmp_path / "given.npy", *(tmp_path / name for name in made)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == "kept\n", "stderr is back after the runs"


def test_what_the_switches_are_called() -> None:
    """The delegate's text names the switches that the test above sets."""
    text = (runtime_folder() / "delegate" / "neutron_backend.cpp").read_text()
    assert "#if NO_HEAP_USAGE\n" in text and "#ifdef NEUTRON_NPU_POWER_GATING\n" in text
