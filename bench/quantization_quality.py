# SPDX-License-Identifier: BSD-3-Clause
"""Measure the signal to quantization noise ratio of int8 operators against float, in dB.

``python -m bench.quantization_quality [NAME …]`` prints the table for the operators whose names contain one of these;
``--write`` writes docs/quantization-quality.md. Everything is seeded. All operators are quantized, compiled and run as
one model, with inputs and an output of its own for each; what is beside them is the same operator computed exactly between an int8
input and an int8 output, their ranges chosen by the same observer.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.quality_cases import Case, cases
from openneutron.api.pytorch import analyse
from openneutron.pytorch.quantizer.specs import activation_spec

SAMPLES = 12
"""Inputs that calibrate and are measured: this is about rounding, not about how well some inputs tell the range of others."""

PAGE = Path(__file__).parents[1] / "docs" / "quantization-quality.md"

HEAD = """# Quantization quality

Signal to quantization noise ratio, in dB, of single operators and blocks, quantized by `NeutronQuantizer`, compiled and run on the
simulator, against float. Data is uniform in [-3, 3] (another range is in the name), mostly 1x8x16x16; 12 seeded samples calibrate
and are measured. "exact" is the float function between an int8 input and an int8 output, with ranges from the same
observer; no int8 kernel can be much better. "least" is the required ratio. An operator that is not delegated as a whole is marked.

Made by `python -m bench.quantization_quality --write`.

| operator | ours | exact | least |
| --- | --- | --- | --- |
"""


TAIL = """
## Results with parts

A small YOLO head (distributions of distances, anchors, strides; boxes up to 64 pixels, scores behind a sigmoid with bias -2), boxes and scores
in dB, on `imxrt700` and `imx95` alike. PT2E is PyTorch's quantization with XNNPACK's quantizer, on the same 8 samples.

| result | boxes | scores | scores, one scale | scores, PT2E |
| --- | --- | --- | --- | --- |
| `cat((boxes, scores), 1)` | 45.0 | 39.2 | 0.0 | 0.0 |
| two results | 45.0 | 39.2 |  | 39.2 |

A part that shares a scale with a part of larger values loses 6 dB for each factor of 2 between their ranges. Such parts are quantized apart
([quantization.md](quantization.md#results-with-parts)).

## How blocks were chosen

Scale and shift behind a decomposed normalization have three possible forms: a product and a sum; a factor inside 1/sqrt(variance), and a
sum; or a depthwise 1x1 convolution, which rounds once and has weights with a scale per channel. Fake-quantized float, uniform data:

| affine part | layer norm over 16 | layer norm over 64 | instance norm |
| --- | --- | --- | --- |
| product and sum | 37.4 | 38.6 | 40.7 |
| factor times 1/sqrt, sum | 37.8 | 39.0 | 41.6 |
| depthwise convolution (used) | 37.6 | 40.0 | 42.2 |
| none at all | 40.3 | 41.6 | 42.6 |

Attention weights have two possible forms: LiteRT's SOFTMAX with its fixed scale 1/256, or exponentials relative to the row's largest,
which are multiplied by the values; the division by their sum comes last. Normally distributed queries, keys and values, times a spread:

| spread, keys | SOFTMAX | divided last |
| --- | --- | --- |
| 0.5, 32 | 28.6 | 36.6 |
| 1, 32 | 29.7 | 31.7 |
| 1.7, 32 | 30.1 | 29.3 |
| 0.5, 128 | 16.9 | 35.2 |
| 1, 128 | 20.3 | 29.5 |
| 0.5, 128, causal | 25.1 | 24.0 |
| 1, 128, causal | 26.4 | 26.3 |

So attention over at most 16 keys, and behind a causal mask, uses SOFTMAX; elsewhere the division comes last. (The columns of SOFTMAX were measured with
LiteRT's scale 1/256. A softmax whose largest probability in calibration is at most 1/4 now has a scale of its own, which ends at that
probability: [quantization.md](quantization.md#softmax).) Scores
more than 9 below the largest of their row do not count for the range of a softmax's input; otherwise a mask of -64 would take four
fifths of the steps.
"""


@dataclass(frozen=True, slots=True)
class Quality:
    """The result of one case; ``on_cpu``: its operators that were not delegated."""

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
    model = _Side(wanted).eval()
    # Seeded by name: a case's data is the same whatever is measured beside it.
    generators = [torch.Generator().manual_seed(zlib.crc32(case.name.encode())) for case in wanted]
    samples = [_inputs(wanted, generators) for _ in range(SAMPLES)]
    program = analyse(model, samples[0], calibration=samples)
    with torch.no_grad():
        results = [program.run(*sample) for sample in samples]
        found = []
        for place, case in enumerate(wanted):
            start = sum(model.counts[:place])
            mine = slice(start, start + model.counts[place])
            real = [case.function(*sample[mine]) for sample in samples]
            borders = [_Border([sample[index] for sample in samples]) for index in range(mine.start, mine.stop)]
            result = _Border(real)
            exact = [
                result(case.function(*(border(x) for border, x in zip(borders, sample[mine], strict=True))))
                for sample in samples
            ]
            stays = tuple(
                item.operator for item in program.delegation.on_cpu if f"{item.module}.".startswith(f"parts.{place}.")
            )
            ours = [torch.as_tensor(outputs[place]) for outputs in results]
            found.append(Quality(case, sqnr(real, ours), sqnr(real, exact), stays))
    return found


def sqnr(real: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return 10 log10 of the signal's energy over that of its difference from ``other``."""
    signal = sum(float((x.double() ** 2).sum()) for x in real)
    noise = sum(float(((x.double() - y.double()) ** 2).sum()) for x, y in zip(real, other, strict=True))
    return 10 * float(torch.log10(torch.tensor(signal / max(noise, 1e-30))))


def _inputs(wanted: Sequence[Case], generators: Sequence[torch.Generator]) -> tuple[Tensor, ...]:
    return tuple(
        torch.rand(shape, generator=generator) * (case.high - case.low) + case.low
        for case, generator in zip(wanted, generators, strict=True)
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
    """Return the table's lines, as Markdown."""
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
        PAGE.write_text(HEAD + "\n".join(lines(found)) + "\n" + TAIL)
    for item in found:
        if not item.is_enough:
            print(f"{item.case.name}: {item.ours:.1f} dB; it must be {item.case.least:g}.")
    return 0 if all(item.is_enough for item in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
