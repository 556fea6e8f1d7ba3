# SPDX-License-Identifier: BSD-3-Clause
"""Measure an operator's samples: the delegation, the reasons for CPU fallbacks, and the error against float."""

from __future__ import annotations

import multiprocessing
import resource
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import torch
from torch import Tensor

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.device.third_party import suppressed
from openneutron.errors import OpenNeutronError
from openneutron.options import PORTABLE, CompileOptions, DelegationOptions
from openneutron.pytorch.partition.delegation import check_kernels
from openneutron.pytorch.quantizer.specs import activation_spec
from tests.suites.op_db.samples import Sample, Samples, results_of

WHOLE, PART, CPU = "whole", "in part", "on the CPU"
NOTHING, EMPTY = "computes nothing", "without elements"
NOT_RUN, REFUSED, FAILED, WRONG = "not run", "refused", "failed", "wrong"
COARSE = "coarse"
"""The kinds of outcomes of a sample. NOTHING: a view, or a result that does not
depend on the input. EMPTY: an operator on the CPU, where a tensor of the sample has no elements. NOT_RUN: it is compiled, and ends in the message that ExecuTorch's runtime has no kernel for an operator on the
CPU, or would not run the program. REFUSED: a message before anything is compiled, for example where a shape depends on the data, or
the runtime has no kernel for an operator that is certain to stay on the CPU. FAILED: an exception that is no message. COARSE: results further from float than the
rounding of inputs and outputs explains, but those of the quantized module in PyTorch's own arithmetic: the scale of an
intermediate result is too coarse. WRONG: results further from float, and not those of the quantized module."""

ENOUGH_DB = 18.0
"""The SQNR from which on a result counts as right for every operator."""

WORSE_DB = 15.0
"""The margin in dB by which a result's SQNR may be below that of the float function between an int8 input and an int8
output: decomposed operators round several times."""

ALIKE_DB = 30.0
"""The SQNR from which on a result is that of the quantized module in PyTorch's arithmetic, which rounds a little
differently."""

SMALL = 1 / 256
"""The largest difference that counts as right for every operator: a step of LiteRT's fixed scale of sigmoid and softmax."""

MOST_SECONDS = 240
"""Seconds of CPU time after which samples count as failed."""

MOST_WAITED = 3600
"""Seconds of waiting after which samples count as failed."""

WRONG_IN_EXECUTORCH = {
    "aten.max_pool2d_with_indices_backward.default": "ExecuTorch's kernel adds gradients to memory that it does not clear"
}
"""Operators on the CPU whose results are not compared, since ExecuTorch's kernel is wrong."""

NOT_FINITE = "an input is infinite or NaN; ExecuTorch's quantize kernel takes either to any int8 value"

TOGETHER = 32
"""Samples that are compiled as one model at most."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one sample. ``reasons``: why operators stay on the CPU, or the message; ``decibels``: the worst
    float result's SQNR, None where no float result was compared; ``exact``: the SQNR of the exact function between int8
    values."""

    kind: str
    reasons: tuple[str, ...] = ()
    decibels: float | None = None
    exact: float | None = None


def outcomes(samples: Sequence[Sample], targets: Sequence[str]) -> list[tuple[Outcome, ...]]:
    """Return the samples' outcomes, one for each target: several samples compiled as one model, or fewer where that fails or is
    wrong, down to one.

    Each model is compiled and run in a process of its own, so that a crash is an outcome.
    """
    groups = [samples[first : first + TOGETHER] for first in range(0, len(samples), TOGETHER)]
    return [outcome for group in groups for outcome in _of_group(group, targets)]


def _of_group(samples: Sequence[Sample], targets: Sequence[str]) -> list[tuple[Outcome, ...]]:
    together = _apart(samples, targets)
    if len(samples) == 1 or all(item.kind in _GOOD for items in together for item in items):
        return together
    half = len(samples) // 2
    return [*_of_group(samples[:half], targets), *_of_group(samples[half:], targets)]


_GOOD = (WHOLE, PART, CPU, NOTHING, EMPTY, COARSE)


def _apart(samples: Sequence[Sample], targets: Sequence[str]) -> list[tuple[Outcome, ...]]:
    """Return the outcomes from a child process, or the same failure for each sample where it crashes or takes too
    long."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(there, samples, targets))
    child.start()
    there.close()
    try:
        if not here.poll(MOST_WAITED):
            return _alike(Outcome(FAILED, (f"it takes more than {MOST_WAITED} s",)), samples, targets)
        found: list[tuple[Outcome, ...]] = here.recv()
        return found
    except EOFError:
        child.join()
        return _alike(Outcome(FAILED, (f"the process ends with exit code {child.exitcode}",)), samples, targets)
    finally:
        child.kill()
        child.join()
        here.close()


def _alike(outcome: Outcome, samples: Sequence[Sample], targets: Sequence[str]) -> list[tuple[Outcome, ...]]:
    return [(outcome,) * len(targets)] * len(samples)


def _send(there: Connection, samples: Sequence[Sample], targets: Sequence[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    torch.set_num_threads(1)  # a pool of threads does not survive the fork
    there.send(outcomes_here(samples, targets))


def outcomes_here(samples: Sequence[Sample], targets: Sequence[str]) -> list[tuple[Outcome, ...]]:
    """Return the outcomes of samples that are compiled as one model, in this process; an error of that compile counts for
    each sample.

    The model is quantized and partitioned once, since both are the same for chips that compute the same types. Its programs are
    compiled and run for each target.
    """
    torch.manual_seed(0)
    module = Samples(list(samples)).eval()
    tensors = module.tensors
    first, *others = targets
    try:
        with torch.no_grad(), suppressed():
            real = module(*(tensor.clone() for tensor in tensors))
            program = openneutron.compile(
                module,
                tensors,
                calibration=[tensors],
                options=CompileOptions(target=first, cpu=PORTABLE),
                name="sample",
                delegation=DelegationOptions(must_delegate=False),
            )
            runs = [_run(program, tensors)]
            runs += [_run(program.recompile(target=other), tensors) for other in others]
            # The reference takes the inputs rounded to int8, as any int8 kernel does.
            rounded = module(*(_rounded(tensor) for tensor in tensors))
    except OpenNeutronError as error:
        is_late = any(frame.name == check_kernels.__name__ for frame in traceback.extract_tb(error.__traceback__))
        return _alike(Outcome(NOT_RUN if is_late else REFUSED, (str(error),)), samples, targets)
    except Exception as error:
        return _alike(Outcome(FAILED, (_in_short(error),)), samples, targets)
    columns = [_judged(samples, program, results, message, real, rounded) for results, message in runs]
    return list(zip(*columns, strict=True))


def _judged(
    samples: Sequence[Sample],
    program: CompiledModel,
    results: Sequence[Tensor],
    message: str,
    real: Sequence[object],
    rounded: Sequence[object],
) -> list[Outcome]:
    """Return the outcomes of one run of a model of samples: of its results, or of the message where ExecuTorch refused it."""
    tensors = [tensor for sample in samples for tensor in sample.tensors]
    found, taken = [], 0
    for place, (expected, exact) in enumerate(zip(real, rounded, strict=True)):
        wanted, best = list(results_of(expected)), list(results_of(exact))
        which = slice(taken, taken + len(wanted))
        got, taken = list(results[which]), which.stop
        path = f"parts.{place}"
        on_cpu = [item for item in program.delegation.on_cpu if item.module == path and item.computes]
        reasons = tuple(f"{item.overload}: {item.reason}" for item in on_cpu)
        on_npu = any(item.name == path for item in program.delegation.on_npu)
        kind = (PART if reasons else WHOLE) if on_npu else CPU if reasons else NOTHING
        if reasons and not all(tensor.numel() for tensor in (*samples[place].tensors, *wanted)):
            kind = EMPTY
        wrong = tuple(WRONG_IN_EXECUTORCH[item.overload] for item in on_cpu if item.overload in WRONG_IN_EXECUTORCH)
        if any(tensor.is_floating_point() and not tensor.isfinite().all() for tensor in samples[place].tensors):
            wrong = (*wrong, NOT_FINITE)
        is_comparable = samples[place].is_defined and not wrong
        if message:
            found.append(Outcome(NOT_RUN if reasons else REFUSED, (*reasons, message)))
        elif not is_comparable or any(_is_random(item.overload) for item in on_cpu):
            found.append(Outcome(kind, (*reasons, *wrong)))
        else:
            outcome = _compared(kind, reasons, wanted, got, best)
            if outcome.kind == WRONG and _is_as_quantized(program, tensors, which, got):
                outcome = replace(outcome, kind=COARSE)
            found.append(outcome)
    return found


def _is_as_quantized(program: CompiledModel, tensors: Sequence[Tensor], which: slice, got: Sequence[Tensor]) -> bool:
    """Return whether these results are those of the quantized module in PyTorch's own arithmetic."""
    with torch.no_grad(), suppressed():
        simulated = list(results_of(program.quantized(*tensors)))[which]
    return all(
        mine.shape == other.shape and (mine.dtype != torch.float32 or _sqnr(other, mine) >= ALIKE_DB)
        for mine, other in zip(got, simulated, strict=True)
    )


def _is_random(overload: str) -> bool:
    """Return whether two calls of an operator (``aten.rand.default``, ``aten.new_empty.default``) may give different
    results."""
    namespace, name, variant = overload.split(".")
    if "empty" in name:  # part of a sample's own function
        return True
    found = getattr(getattr(getattr(torch.ops, namespace), name), variant)
    return torch.Tag.nondeterministic_seeded in found.tags


def _run(program: CompiledModel, tensors: Sequence[Tensor]) -> tuple[list[Tensor], str]:
    """Return the results, or the message where ExecuTorch refuses the program."""
    try:
        return list(results_of(program.run(*tensors))), ""
    except OpenNeutronError as error:
        return [], str(error)


def _compared(
    kind: str, reasons: tuple[str, ...], wanted: list[Tensor], got: list[Tensor], best: list[Tensor]
) -> Outcome:
    figures = []
    for want, mine, exact in zip(wanted, got, best, strict=True):
        if tuple(mine.shape) != tuple(want.shape):
            return Outcome(WRONG, (f"its result has shape {list(mine.shape)}, not {list(want.shape)}",))
        if want.dtype == torch.float32 and _differs(want, mine):
            figures.append((_sqnr(want, mine), _sqnr(want, _rounded(exact))))
    worst = min(figures, key=lambda pair: pair[0] - min(pair[1], ENOUGH_DB + WORSE_DB), default=(None, None))
    ours, exact_db = worst
    if ours is not None and exact_db is not None and ours < min(ENOUGH_DB, exact_db - WORSE_DB):
        return Outcome(WRONG, (f"{ours:.1f} dB; exact between int8 values it is {exact_db:.1f}", *reasons), *worst)
    return Outcome(kind, reasons, *worst)


def _differs(want: Tensor, mine: Tensor) -> bool:
    finite = want.isfinite()
    return bool(((want - mine)[finite].abs() > SMALL).any())


def _sqnr(real: Tensor, other: Tensor) -> float:
    """Return 10 log10 of the signal's energy over that of the difference, of the finite elements; 100 at most."""
    finite = real.isfinite()
    signal_, noise = (float(((x[finite]).double() ** 2).sum()) for x in (real, real - other.reshape(real.shape)))
    if not noise <= signal_ * 1e10:
        return -100.0
    return 100.0 if noise <= signal_ * 1e-10 else 10 * float(torch.log10(torch.tensor(signal_ / noise)))


def _rounded(x: Tensor) -> Tensor:
    """Return a float tensor rounded to int8 and back, in the range that calibration would choose; other tensors
    unchanged."""
    if x.dtype != torch.float32 or not x.numel():
        return x.clone()
    spec = activation_spec()
    observer = spec.observer_or_fake_quant_ctr(
        dtype=spec.dtype, quant_min=spec.quant_min, quant_max=spec.quant_max, qscheme=spec.qscheme
    )
    observer(x)
    scale, zero_point = (float(item) for item in observer.calculate_qparams())
    stored = (torch.round(torch.nan_to_num(x) / scale) + zero_point).clamp(-128, 127)
    return (stored - zero_point) * scale


def _in_short(error: Exception) -> str:
    """Return an exception in one line: its type, message and the last line of this project in its traceback."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/openneutron/" in frame.filename]
    where = f" at {own[-1].filename.rpartition('/openneutron/')[2]}:{own[-1].name}" if own else ""
    return f"{type(error).__name__}{where}: {' '.join(str(error).split())[:300]}"
