# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.advice [NETWORK ...]`` follows all advice of reports, and lines of memory against latency.

Twelve networks on three chips, each at the chip's budget and at one in the middle of its lines. A line of output for each has the number
of changes that were compiled, those whose compile has other figures, and the largest gains. The exit code is 1 where a figure is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.suites.advice.followed import Followed, followed, middle_budget, report

SHARED = Path(__file__).parents[4] / "shared" / "models"
FILES = ("mlperf_tiny_kws_int8", "mlperf_tiny_resnet8_int8", "mlperf_tiny_vww96_int8", "mobilenet_v2_224_random_int8")
BUILT_IN = (
    "cifarnet",
    "ds_cnn",
    "unet",
    "mobilenet_v3_small",
    "mobilenet_v2",
    "tcn",
    "transformer_encoder",
    "lstm_kws",
)
NETWORKS = (*(str(SHARED / f"{name}.tflite") for name in FILES), *BUILT_IN)
TARGETS = ("imxrt700", "mcxn94x", "imx95")


def main() -> int:
    """Follow the advice, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.advice", description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    given = parser.parse_args()
    wrong = changes = 0
    print(
        "| network | chip | budget | latency, SRAM | advice | lines | wrong |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        for network in given.networks:
            for target in given.targets:
                middle = middle_budget(report(network, ("--target", target), cache))
                for options in ((), ("--sram-budget", str(middle))):
                    found = list(followed(network, target, options, cache))
                    false = [item for item in found if not item.is_true]
                    print(line(found), flush=True)
                    for item in false:
                        print(f"  wrong: {item}", flush=True)
                    wrong, changes = wrong + len(false), changes + len(found)
    print(f"{changes} changes were compiled; {wrong} have other figures than the report says.")
    return int(wrong > 0)


def line(found: list[Followed]) -> str:
    """Return a row of the table for the report of a network."""
    first = found[0]
    time, size = first.before
    gains = ", ".join(
        f"`{item.options}` {item.said[0]:.3g} ms, {item.said[1] / 1024:.0f} KiB" for item in found if item.is_advice
    )
    lines = sum(not item.is_advice for item in found)
    false = sum(not item.is_true for item in found)
    name = Path(first.network).stem
    return f"| {name} | {first.target} | {first.budget} | {time:.3g} ms, {size / 1024:.0f} KiB | {gains} | {lines} | {false} |"


if __name__ == "__main__":
    sys.exit(main())
