# SPDX-License-Identifier: BSD-3-Clause
"""How much of the signal int8 keeps, operator by operator: signal to quantization noise ratio against float, in dB.

``python -m bench.quantization_quality [NAME …]`` prints the table for the operators whose names contain one of these;
``--write`` writes docs/quantization-quality.md. Everything is seeded. Operators are quantized, compiled and run many
in one model, with inputs and an output of its own for each; what is beside them is the same operator computed exactly between an int8
input and an int8 output, their ranges chosen by the same observer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.quality_cases import Case, cases
from openneutron.pytorch.compile import analyse
from openneutron.pytorch.quantizer.specs import activation_spec

SAMPLES = 8
"""Inputs that calibrate; as many others are measured."""

TOGETHER = 32
"""Cases in one model: ExecuTorch does not load a method of all of them."""

PAGE = Path(__file__).parents[1] / "docs" / "quantization-quality.md"

HEAD = """# Quantization quality

Signal to quantization noise ratio, in dB, of single operators and blocks, quantized by `NeutronQuantizer`, compiled and run on the
simulator, against float. Data is uniform in [-3, 3] (another range is in the name), mostly 1x8x16x16; 8 seeded samples calibrate, 8
others are measured. "exact" is the float function between an int8 input and an int8 output, with ranges from the same
observer: what no int8 kernel can be much better than. "least" is what the project demands. An operator that is not
delegated as a whole is marked.

Made by `python -m bench.quantization_quality --write`.

| operator | ours | exact | least |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Quality:
    """What one case reaches; ``on_cpu``: operators of it that were not delegated."""

    case: Case
    ours: float
    exact: float
    on_cpu: tuple[str, ...]

    @property
    def is_enough(self) -> bool:
        return self.case.least is None or self.ours >= self.case.least


class _Side(nn.Module):
    """Every case beside the others, each with inputs and a result of its own."""

    def __init__(self, wanted: Sequence[Case]) -> None:
        super().__init__()
        self.counts = [len(case.shapes) for case in wanted]
        self.parts = nn.ModuleList([_Part(case) for case in wanted])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rest = iter(inputs)
        return tuple(
            part(*(next(rest) for _ in range(count))) for part, count in zip(self.parts, self.counts, strict=True)
        )


class _Part(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.function = case.function

    def forward(self, *inputs: Tensor) -> Tensor:
        result: Tensor = self.function(*inputs)
        return result


def measure(wanted: Sequence[Case]) -> list[Quality]:
    """Every case's figures."""
    batches = [wanted[start : start + TOGETHER] for start in range(0, len(wanted), TOGETHER)]
    return [item for batch in batches for item in _measured(batch)]


def _measured(wanted: Sequence[Case]) -> list[Quality]:
    model = _Side(wanted).eval()
    generator = torch.Generator().manual_seed(1)
    samples = [_inputs(wanted, generator) for _ in range(2 * SAMPLES)]
    calibration, measured = samples[:SAMPLES], samples[SAMPLES:]
    program = analyse(model, calibration[0], calibration=calibration)
    with torch.no_grad():
        results = [program.run(*sample) for sample in measured]
        found = []
        for place, case in enumerate(wanted):
            start = sum(model.counts[:place])
            mine = slice(start, start + model.counts[place])
            known = [case.function(*sample[mine]) for sample in calibration]
            real = [case.function(*sample[mine]) for sample in measured]
            borders = [_Border([sample[index] for sample in calibration]) for index in range(mine.start, mine.stop)]
            result = _Border(known)
            exact = [
                result(case.function(*(border(x) for border, x in zip(borders, sample[mine], strict=True))))
                for sample in measured
            ]
            stays = tuple(
                item.operator for item in program.delegation.on_cpu if f"{item.module}.".startswith(f"parts.{place}.")
            )
            ours = [torch.as_tensor(outputs[place]) for outputs in results]
            found.append(Quality(case, sqnr(real, ours), sqnr(real, exact), stays))
    return found


def sqnr(real: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """10 log10 of the signal's energy over that of its difference from ``other``."""
    signal = sum(float((x.double() ** 2).sum()) for x in real)
    noise = sum(float(((x.double() - y.double()) ** 2).sum()) for x, y in zip(real, other, strict=True))
    return 10 * float(torch.log10(torch.tensor(signal / max(noise, 1e-30))))


def _inputs(wanted: Sequence[Case], generator: torch.Generator) -> tuple[Tensor, ...]:
    return tuple(
        torch.rand(shape, generator=generator) * (case.high - case.low) + case.low
        for case in wanted
        for shape in case.shapes
    )


class _Border:
    """int8 and back, in the range that calibration would choose."""

    def __init__(self, seen: Sequence[Tensor]) -> None:
        spec = activation_spec()
        observer = spec.observer_or_fake_quant_ctr(
            dtype=spec.dtype, quant_min=spec.quant_min, quant_max=spec.quant_max, qscheme=spec.qscheme
        )
        for x in seen:
            observer(x)
        self.scale, self.zero_point = (float(item) for item in observer.calculate_qparams())

    def __call__(self, x: Tensor) -> Tensor:
        stored = (torch.round(x / self.scale) + self.zero_point).clamp(-128, 127)
        return (stored - self.zero_point) * self.scale


def lines(found: Sequence[Quality]) -> list[str]:
    """The table's lines, as Markdown."""
    return [
        f"| {item.case.name}{' (partly on the CPU: ' + ', '.join(item.on_cpu) + ')' if item.on_cpu else ''} "
        f"| {item.ours:.1f} | {item.exact:.1f} | {'' if item.case.least is None else f'{item.case.least:g}'} |"
        for item in found
    ]


def main(arguments: Sequence[str]) -> int:
    """Prints the table; 1 where a case has less than it must."""
    names = [name for name in arguments if name != "--write"]
    wanted = [case for case in cases() if not names or any(name in case.name for name in names)]
    if not wanted:
        print(f"bench.quantization_quality: no operator's name contains {' or '.join(names)}.")
        return 2
    found = measure(wanted)
    print("\n".join(lines(found)))
    if "--write" in arguments and not names:
        PAGE.write_text(HEAD + "\n".join(lines(found)) + "\n")
    for item in found:
        if not item.is_enough:
            print(f"{item.case.name}: {item.ours:.1f} dB; it must be {item.case.least:g}.")
    return 0 if all(item.is_enough for item in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
