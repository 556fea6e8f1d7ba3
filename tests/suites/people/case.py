# SPDX-License-Identifier: BSD-3-Clause
"""A case: a model, its inputs, and its bars; and the measurement of a case."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import openneutron
from openneutron import CompileOptions
from openneutron.errors import OpenNeutronError
from tests.support import oracle

Inputs = tuple[Any, ...]
Make = Callable[[], Any]
Draw = Callable[[], Any]

SAMPLES = 8
"""Calibration samples of a case; the first ``COMPARED`` are compared with float."""

COMPARED = 4
ENOUGH_DB = 45.0
"""The SQNR from which on a result is right whatever the bar."""


@dataclass(frozen=True, slots=True)
class Case:
    """``make`` returns the model, ``draw`` the inputs of one sample: a tuple, or one tensor. A model of bytes is a ``.tflite``, which
    gets random inputs.

    ``bar``: the least SQNR in dB of each float output against the float model, one number or one for each output. Other outputs
    have to be equal to those of the float model for ``agree`` of their elements. ``calls``: the most delegate calls; with one call
    no operator may be on the CPU. ``parts``: functions of the first output whose results reach the bar by themselves. ``refused``:
    words of the error that the case ends in. ``reason``: why a bar is below the usual one. ``stateful``: the samples are steps of
    a stream, compared after a reset.
    """

    name: str
    kind: str
    make: Make
    draw: Draw | None = None
    bar: float | tuple[float, ...] = 30.0
    calls: int = 1
    target: str = "imxrt700"
    agree: float = 1.0
    parts: tuple[Callable[[Tensor], Tensor], ...] = ()
    refused: tuple[str, ...] = ()
    reason: str = ""
    stateful: bool = False
    samples: int = SAMPLES
    options: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case: whether it reached its bars, and its figures in words."""

    good: bool
    text: str


CASES: dict[str, Case] = {}


def case(name: str, make: Make, draw: Draw | None = None, *, kind: str, **fields: Any) -> None:
    """Add a case to the table. Raises AssertionError where the name is taken."""
    assert name not in CASES, name
    CASES[name] = Case(name, kind, make, draw, **fields)


class Call(nn.Module):
    """A function of the module and its inputs as a model, with layers by name."""

    def __init__(self, call: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.call = call
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: Any) -> Any:
        return self.call(self, *inputs)


def settled(model: nn.Module, *draws: Any) -> nn.Module:
    """Return the model with the statistics of its batch normalizations taken from these inputs."""
    model.train()
    with torch.no_grad():
        for _ in range(20):
            model(*draws)
    return model.eval()


def measure(one: Case) -> Result:
    """Compile and run a case. Any exception that is no ``OpenNeutronError`` is raised."""
    torch.manual_seed(0)
    model = one.make()
    if isinstance(model, bytes):
        return _measure_file(one, model)
    if isinstance(model, nn.Module):
        model = model.eval()
    assert one.draw is not None
    samples = [_as_tuple(one.draw()) for _ in range(one.samples)]
    try:
        program = openneutron.compile(
            model, samples[0], calibration=samples, options=CompileOptions(target=one.target), **one.options()
        )
    except OpenNeutronError as error:
        text = " ".join(str(error).split())
        return Result(bool(one.refused) and all(word in text for word in one.refused), f"refused: {text[:160]}")
    if one.refused:
        return Result(False, f"compiles; it should be refused with {one.refused}")
    return _judged(one, program, model, samples[:COMPARED])


def _measure_file(one: Case, content: bytes) -> Result:
    """Compile and run a ``.tflite``, and compare it with LiteRT's reference kernels byte by byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        try:
            program = openneutron.compile(str(path), options=CompileOptions(target=one.target))
        except OpenNeutronError as error:
            text = " ".join(str(error).split())
            return Result(bool(one.refused) and all(word in text for word in one.refused), f"refused: {text[:160]}")
        interpreter, random = oracle.interpreter_of(content), np.random.default_rng(0)
        differing = 0
        for _ in range(COMPARED):
            sample = [_random(item["shape"], item["dtype"], random) for item in interpreter.get_input_details()]
            wanted = oracle.results_of(interpreter, sample)
            pairs = zip(wanted, program.run(*sample), strict=True)
            differing += sum(int((want != np.asarray(mine)).sum()) for want, mine in pairs)
    is_split = len(program.report.partitions) > one.calls or (one.calls == 1 and not program.report.whole)
    text = f"{differing} values differ from LiteRT" + (", split" if is_split else "")
    return Result(differing == 0 and not is_split, text)


def _random(shape: Sequence[int], dtype: type[np.generic], random: np.random.Generator) -> np.ndarray:
    """Return random values of the whole range of an integer type, or normal ones."""
    if np.issubdtype(dtype, np.integer):
        return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return random.standard_normal(shape).astype(dtype)


def _judged(one: Case, program: Any, model: Any, samples: Sequence[Inputs]) -> Result:
    reference = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    program.reset()
    got = [_leaves(program.run(*sample)) for sample in samples]
    with torch.no_grad():
        wanted = [_leaves(reference(*sample)) for sample in samples]
    figures, good = [], True
    bars = one.bar if isinstance(one.bar, tuple) else (one.bar,) * len(wanted[0])
    for place, bar in enumerate(bars):
        want, mine = [each[place] for each in wanted], [each[place] for each in got]
        if not want[0].is_floating_point():
            share = _agreement(want, mine)
            good, figures = good and share >= one.agree, [*figures, f"{share:.0%} equal"]
            continue
        found = [sqnr(want, mine)]
        if place == 0:
            found += [sqnr(map(part, want), map(part, mine)) for part in one.parts]
        good = good and min(found) >= min(bar, ENOUGH_DB)
        figures.append(" ".join(f"{each:.1f}" for each in found) + " dB")
    calls = len(program.parts)
    is_split = calls > one.calls or (one.calls == 1 and not program.report.whole)
    text = ", ".join(figures) + (f", {calls} calls" if is_split else "")
    if is_split:
        first = next((str(item) for item in program.delegation.on_cpu if item.computes and not item.converts), "")
        text += f": {first[:120]}"
    return Result(good and not is_split, text)


def sqnr(wanted: Iterable[Tensor], got: Iterable[Tensor]) -> float:
    """Return 10 log10 of the signal's energy over that of the difference, over all elements of the samples; 100 at most."""
    want = torch.cat([each.detach().double().flatten() for each in wanted])
    mine = torch.cat([each.detach().double().flatten() for each in got])
    noise, signal = float((want - mine).pow(2).sum()), float(want.pow(2).sum())
    return 100.0 if noise <= 1e-10 * signal else 10 * float(np.log10(max(signal, 1e-30) / noise))


def _agreement(wanted: Sequence[Tensor], got: Sequence[Tensor]) -> float:
    same = torch.cat([(want == mine.reshape(want.shape)).flatten() for want, mine in zip(wanted, got, strict=True)])
    return float(same.double().mean())


def _leaves(value: Any) -> list[Tensor]:
    if is_dataclass(value):
        value = [getattr(value, item.name) for item in dataclass_fields(value)]
    return [torch.as_tensor(leaf).clone() for leaf in pytree.tree_leaves(value) if leaf is not None]


def _as_tuple(drawn: Any) -> Inputs:
    return drawn if isinstance(drawn, tuple) else (drawn,)
