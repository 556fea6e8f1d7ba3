# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls that several threads compute: the same bytes for any number and order of parts, and no data race."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from openneutron.device.runtime_sources import sources_of
from openneutron.device.simulator import Moment, Simulator, Trace
from openneutron.errors import DriverError
from openneutron.isa import decode
from openneutron.isa.kernel_selection import KernelSelection
from openneutron.isa.rows import KERNELS
from tests.driver.races import races
from tests.driver.sanitized import RUNTIME
from tests.support.divided import Divided
from tests.support.fuzz_seeds import seeds

SLICE = frozenset(
    {
        "add_s8",
        "attention_s8",
        "conv_2d_1x1_s8",
        "conv_2d_s8",
        "copy_s8",
        "gather_s8",
        "mean_s8",
        "pad_s8",
        "softmax_s8",
    }
)
"""Kernels of each kind of division: by any axis, with scratch, and with errors of their own."""

DIVIDED = {row.name for row in KERNELS if row.shared_axes}


def results(simulator: Simulator, inputs: Sequence[np.ndarray], trace: Trace | None = None) -> list[bytes] | str:
    """Return the outputs of a run from the first state on, or the driver's words."""
    simulator.reset()
    try:
        return [output.tobytes() for output in simulator.run(inputs, trace)]
    except DriverError as error:
        return str(error)


def random_inputs(simulator: Simulator, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, binding["size"], np.uint8) for binding in simulator.microcode.inputs]


def test_every_kernel_in_two_to_four_parts() -> None:
    kernels: set[str] = set()
    for number, program in enumerate(seeds()):
        whole = Simulator(program)
        inputs = random_inputs(whole, number)
        wanted = results(whole, inputs)
        for count in (2, 3, 4):
            divided = Divided(program, count)

            def after(moment: Moment, divided: Divided = divided) -> None:
                if divided.parts > 1:
                    kernels.add(moment.microcode.operators[moment.operator].row.name)
                divided.parts = 0

            assert results(divided, inputs, after) == wanted, (number, count)
    assert kernels == DIVIDED


def test_no_data_race(tmp_path: Path) -> None:
    """The kernels of ``SLICE``; ``python -m tests.fuzz.threads`` has all of them."""
    called = {number: {call.row.name for call in decode(program).operators} for number, program in enumerate(seeds())}
    programs = [seeds()[number] for number, names in called.items() if names <= SLICE]
    assert set().union(*(names for names in called.values() if names <= SLICE)) == SLICE
    (tmp_path / "kernel_selection.c").write_text(KernelSelection("tests", tuple(sorted(SLICE))).text())
    needed = [
        RUNTIME / name for name in sources_of(SLICE) if name.startswith(("driver/", "kernels/")) and name.endswith(".c")
    ]
    assert races(tmp_path, programs, [tmp_path / "kernel_selection.c", *needed], "-DNEUTRON_PORTABLE_ONLY") == ""
