# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron profile``, and the fit of a CPU's cost model to the cycles that a board has measured."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import openneutron
from openneutron import targets
from openneutron.api.load import LoadedFile
from openneutron.cli import output
from openneutron.device import files
from openneutron.device.files import existing
from openneutron.device.forms import LITERT, PTE, form_of
from openneutron.device.mixed import FileSimulator, Times
from openneutron.device.third_party import needs_pytorch, suppressed
from openneutron.errors import InvalidModelError, InvalidOptionError, InvalidProgramError
from openneutron.features.profile.profile import (
    HOST,
    KERNEL,
    LAYER,
    MODULE,
    CpuProfile,
    Key,
    Measurement,
    OperatorProfile,
    Profile,
    check_times,
    checksum,
    measured,
    modelled,
    profile_table,
    read_device_csv,
    read_etdump,
    summed,
)
from openneutron.features.profile.timeline import chrome_trace
from openneutron.features.report.loaded import LoadedSummary
from openneutron.features.run.command import Inputs, Seed, given_inputs, open_pte, tflite_inputs
from openneutron.targets import Target

CYCLES = "cycles"
"""The unit of a device's times that a fit needs."""

LEAST_CYCLES = 0.1
"""The smallest value of cycles per instruction that a chip file may have."""

MATTERS = 0.01
"""Operators with less than this share of the measured cycles are left out of the error."""


def refitted(profile: Profile, source: str, name: str) -> str:
    """Return the text of a chip file called ``name``, whose cycles per instruction and error are fitted to a measured
    profile.

    The rest is the chip file of the profile's target. With the fitted cycles, the modelled cycles of all measured
    operators together equal the measured ones, except for rounding to three digits. The error is that of
    ``_ratio_and_error``. ``source`` is the file of the measurement. Raises InvalidOptionError if the target has an
    NPU or is not one of the package's CPUs, if the measured times are not in cycles, or if the fitted cycles per
    instruction are below ``LEAST_CYCLES``.
    """
    target = profile.target
    if target.cpu is None:
        raise InvalidOptionError(
            f"--refit: {target.name} has an NPU, whose cost model has several constants. It is for a CPU, such as cortex-m33."
        )
    if profile.unit != CYCLES:
        raise InvalidOptionError(
            f"--refit: the times of '{source}' are {profile.unit}. It takes the CPU's cycles, which the example of a bundle counts on a board."
        )
    path = targets.CPUS.get(target.name)
    if path is None:
        raise InvalidOptionError(
            f"--refit: '{profile.file}' was compiled for {target.name}. Compile it for one of {', '.join(targets.CPUS)}."
        )
    ratio, error = _ratio_and_error(profile.operators)
    said = f"fitted: to the cycles in {Path(source).name}"
    text = re.sub(r'^name = ".*"$', f'name = "{name}"', path.read_text(), count=1, flags=re.MULTILINE)
    cycles = float(f"{target.cpu.instruction_cycles.value * ratio:.3g}")
    if cycles < LEAST_CYCLES:
        raise InvalidOptionError(
            f"--refit: '{source}' has {ratio:.2g} times the modelled cycles, which is {cycles:g} for an instruction. No core executes "
            "as many instructions in a cycle: check that the example counts the core's cycles."
        )
    text = _with_fact(text, "instruction_cycles", f"{cycles:g}", ' unit = "cycles",', said)
    return _with_fact(
        text, "error", f"{error}", ' unit = "%",', f"{said}; the largest error of a call with 1% of them or more"
    )


def _with_fact(text: str, name: str, value: str, unit: str, source: str) -> str:
    line = f'{name} = {{ value = {value},{unit} source = "{source}" }}'
    return re.sub(rf"^{name} = .*$", lambda _: line, text, count=1, flags=re.MULTILINE)


def _ratio_and_error(operators: Sequence[OperatorProfile]) -> tuple[float, int]:
    """Return two numbers: the measured cycles divided by the modelled ones, over all operators with a measured time;
    and the largest error that remains after the modelled cycles are multiplied by this ratio, in percent. Operators
    with less than 1% of the measured cycles do not count in the error. It is rounded up and limited to 1 to 99."""
    measured = [(item.cycles, item.time) for item in operators if item.time]
    whole = sum(time for _, time in measured)
    ratio = whole / sum(cycles for cycles, _ in measured)
    errors = [abs(cycles * ratio / time - 1) for cycles, time in measured if time >= MATTERS * whole]
    return ratio, min(99, max(1, math.ceil(100 * max(errors))))


ETDUMP_IDENTIFIER = b"ED00"
"""The bytes 8 to 11 of an ETDump. They are the identifier of a flatbuffer that follows its size."""


class By(StrEnum):
    """The kinds of rows that the table can have: one for each layer, module or kernel."""

    LAYER = LAYER
    MODULE = MODULE
    KERNEL = KERNEL


def profile_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .pte or .tflite that was compiled with --profile.")],
    inputs: Inputs = None,
    seed: Seed = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Take the times of an earlier run instead: the CSV that a bundle's example prints on a device, or an ETDump.",
        ),
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="NAME", help="The chip of FILE, for a chip of your own: the path of its .toml file."
        ),
    ] = None,
    by: Annotated[By, typer.Option(help="The rows of the table.")] = By.LAYER,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the modelled schedule as a trace for Perfetto and chrome://tracing."),
    ] = None,
    etdump: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the run's ETDump, for ExecuTorch's Inspector (a .pte).")
    ] = None,
    refit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Fit a CPU's cost model to the cycles of --from, and write it as a chip's file (.toml).",
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Run a compiled file and show where its time goes.

    Each kernel call has its modelled NPU cycles and its time on the simulator, or on the device that recorded them.
    """
    path = existing(file)
    loaded = openneutron.load(path)
    figures = loaded.report
    target = _target(path.name, figures, chip)
    result = modelled(path.name, loaded.programs, target, loaded.host, figures.implied_copy_cycles)
    if etdump is not None and (source is not None or form_of(path) is not PTE):
        raise InvalidOptionError("--etdump: it is for a run of a .pte. Leave it out.")
    if refit is not None and (source is None or refit.suffix != targets.SUFFIX):
        raise InvalidOptionError("--refit: it takes --from with the cycles of a board, and writes a .toml file.")
    if source is not None:
        if inputs or seed is not None:
            raise InvalidOptionError("--from: its times are those of an earlier run. Leave out --input and --random.")
        result = _recorded(result, loaded, existing(str(source)))
    else:
        result = _run(result, loaded, path, inputs or [], seed, etdump)
    if refit is not None:
        files.write({refit: refitted(result, str(source), refit.stem).encode()})
    if trace is not None:
        files.write({trace: chrome_trace(path.name, result.slices, target)})
    output.show(profile_table(result, by.value), "profile", result.to_dict(by.value), as_json)


def _target(file: str, figures: LoadedSummary, chip: str | None) -> Target:
    """Return the chip that a file was compiled for. ``chip`` is the name or the chip file that ``--target`` gives;
    with None, the chip is one that comes with OpenNeutron.

    Raises InvalidTargetError where ``--target`` has no such chip. Raises InvalidModelError where the file was
    compiled for another one, or without ``--target`` for one that does not come with OpenNeutron.
    """
    if chip is None:
        if figures.target is None:
            raise InvalidModelError(
                f"'{file}' was compiled for a chip that does not come with OpenNeutron. Give the chip's file: --target my_chip.toml."
            )
        return figures.target
    target = targets.get(chip)
    if not figures.is_for(target):
        known = "another chip" if figures.target is None else figures.target.name
        raise InvalidModelError(f"--target: '{file}' was compiled for {known}, not for {target.name}.")
    return target


def _run(
    profile: Profile, loaded: LoadedFile, path: Path, given: list[Path], seed: int | None, etdump: Path | None
) -> Profile:
    """Return the profile with the times of a run on this computer. With ``etdump``, the ETDump of the run is written to
    that file."""
    if form_of(path) is LITERT:
        times = Times()
        with suppressed():
            simulator = FileSimulator(path)
            values = given_inputs(path, tflite_inputs(simulator), given, seed)
            simulator.run(values)  # starts LiteRT's process, whose time is not the model's
            simulator.run(values, times)
        calls = summed((checksum(program), call.operator, call.nanoseconds) for program, call in times.calls)
        counts = Counter[str]()
        for words, nanoseconds in times.on_cpu:
            counts[words] += nanoseconds
        on_cpu = [CpuProfile(words, 1, spent) for words, spent in counts.items()]
        return measured(profile, loaded.programs, HOST, calls, on_cpu)
    with suppressed():
        runnable = open_pte(path, traced=True)
        runnable.run(given_inputs(path, runnable.inputs, given, seed))
    assert runnable.etdump is not None
    data = runnable.etdump()
    if etdump is not None:
        files.write({etdump: data})
    return _of_etdump(profile, loaded, "the run", data)


def _recorded(profile: Profile, loaded: LoadedFile, source: Path) -> Profile:
    """Return the profile with the times in the file ``source``: an ETDump, or the CSV that a device printed."""
    data = source.read_bytes()
    if data[8:12] == ETDUMP_IDENTIFIER:
        return _of_etdump(profile, loaded, str(source), data)
    clock, times = read_device_csv(str(source), data.decode(errors="replace"), loaded.programs)
    check_times(str(source), profile.file, "the profile", loaded.programs, times)
    return measured(profile, loaded.programs, clock, times)


def _of_etdump(profile: Profile, loaded: LoadedFile, source: str, data: bytes) -> Profile:
    with suppressed(), needs_pytorch("Reading an ETDump takes"):
        events = read_etdump(source, data)
    times: Mapping[Key, Measurement] = summed(
        (call.program, call.operator, call.host_nanoseconds) for call in events.calls
    )
    if not times:
        raise InvalidProgramError(
            f"--from {source}: it has no kernel calls of a program with facts for profiles ({events.others} other events of "
            "delegates). Run a file that was compiled with --profile, with this project's delegate."
        )
    check_times(source, profile.file, "an ETDump", loaded.programs, times)
    on_cpu = [
        CpuProfile(name, found.calls / events.runs, found.nanoseconds / events.runs)
        for name, found in events.on_cpu.items()
    ]
    return measured(profile, loaded.programs, HOST, times, on_cpu)
