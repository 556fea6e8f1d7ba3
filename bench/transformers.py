# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls and modelled latency of transformers, and those of a compiler with a call for each operator.

``python -m bench transformers`` prints the table; ``python -m bench.transformers --write`` writes docs/transformers.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench import attention_budgets
from openneutron import targets
from openneutron.targets import DEFAULT

TITLE = (
    "Transformers on i.MX RT700: kernel calls, modelled ms and SQNR in dB against float, operator by operator and now"
)

PAGE = Path(__file__).parents[1] / "docs" / "transformers.md"

SEPARATE: dict[str, tuple[int, float, float]] = {
    "vit_tiny_patch16": (457, 11.891, 9.30),
    "conformer": (178, 2.869, 17.94),
    "patchtst": (63, 0.906, 36.92),
    "gpt2": (81, 1.443, 30.14),
    "wav2vec2": (101, 1.844, 23.42),
    "swin_tiny": (188, 56.511, 23.23),
    "segformer_b0": (356, 11.707, 25.54),
}
"""Kernel calls, modelled ms and SQNR in dB of the architectures by commit 33d7d840, the last one that computed attention and normalizations
operator by operator. Its cost model was changed in one place: all pipelines share the exponentials of a softmax, as in today's."""

ISSUE_CYCLES_THEN = 4405
"""The dispatch of a call in these figures; ``measure`` adds what today's dispatch takes more."""

HEAD = """# Transformers

Kernel calls and modelled latency of one inference on i.MX RT700, at int8, operator by operator and as they are compiled now. The
networks are those of [the list of architectures](architectures.md), with random weights. Most of their calls are so short that the
dispatch takes longer than the work ([targets.md](targets.md)). These are one call each, with the bytes of their parts:

* attention: both products, mask and softmax, one query after the other;
* layer norm, RMS norm and group norm (with one rounding instead of several: the SQNR rises);
* a linear layer with the table, sum or product behind it;
* linear layers of one input, such as those of queries, keys and values;
* a normalization with the linear layer in front of it or behind it;
* the two linear layers of a feed-forward block, with activation and residual sum.

SQNR is the signal to noise ratio of the simulated NPU's output against the float model's, over two random inputs. The figures of
operators are those of the last commit that compiled them so (33d7d840), with the dispatch of today's cost model; they lack its bound by the
port of the memory, which would make them slower. Most of the time of `swin_tiny` is that of copies, as its weights do not fit into the
chip's SRAM. Latencies have no range here, since the tables are for comparisons; `openneutron compile` states the range.

Made by `python -m bench.transformers --write`.

"""

BUDGETS = """
## Within a memory budget

The arena of a program without a budget ("whole"), and the least of any schedule. The times are multiples of the modelled latency without
a budget ("ms", without copies of weights): at half and 0.4 of that arena, and at the least. Inputs and outputs ("I/O") are in the arena,
or in the caller's buffers as in ExecuTorch. The caller's buffers are not counted. Every program has the bytes of LiteRT's reference
kernels. An arena that contains the input of `vit_tiny_patch16` cannot be 0.4 of the whole, since its image is larger.

"""


def measure() -> dict[str, Any]:
    """Return for each network the kernel calls, ms and SQNR of both."""
    # Imported here, as the parent of measured processes stays small.
    from tests.suites.architectures.__main__ import measured

    target = targets.get(DEFAULT)
    more = (int(target.costs.issue_cycles.value) - ISSUE_CYCLES_THEN) / (target.npu.clock.value * 1e3)
    results = {}
    for name, (calls, then, sqnr) in SEPARATE.items():
        milliseconds = then + calls * more
        now = measured(name)
        if "error" in now:
            raise RuntimeError(f"{name}: {now['error']}")
        results[name] = {
            "separate": {"calls": calls, "milliseconds": milliseconds, "sqnr_db": sqnr},
            "now": {
                "calls": now["kernel_calls"],
                "milliseconds": now["milliseconds"],
                "sqnr_db": now["sqnr_float_db"],
            },
        }
    return results


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the printed table."""
    heads = ("network", "calls, operators", "calls", "ms, operators", "ms", "times faster", "dB, operators", "dB")
    lines = []
    for name, cell in results.items():
        before, now = cell["separate"], cell["now"]
        pairs = [
            (str(before["calls"]), str(now["calls"])),
            (f"{before['milliseconds']:.2f}", f"{now['milliseconds']:.2f}"),
            (f"{before['sqnr_db']:.1f}", f"{now['sqnr_db']:.1f}"),
        ]
        faster = f"{before['milliseconds'] / now['milliseconds']:.2f}"
        lines.append((name, *pairs[0], *pairs[1], faster, *pairs[2]))
    return heads, lines


def page(results: dict[str, Any], within: dict[str, Any]) -> str:
    """Return docs/transformers.md: this measurement and that of ``attention_budgets``."""
    heads, lines = attention_budgets.rows(within)
    # The last column is compile time.
    return HEAD + _table(*rows(results)) + BUDGETS + _table(heads[:-1], [line[:-1] for line in lines])


def _table(heads: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    table = [heads, ("---",) + ("---:",) * (len(heads) - 1), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


if __name__ == "__main__":
    text = page(measure(), attention_budgets.measure())
    if "--write" in sys.argv:
        PAGE.write_text(text)
    print(text)
