# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.advice [NETWORK ...]`` follows all advice of reports, and lines of memory against latency.

Twelve networks on three chips, each at the chip's budget and at one in the middle of its lines. A line of output for each has the number
of changes that were compiled, those whose compile has other figures, and the largest gains. Rows and the cache of compiles are kept in the
folder of ``--folder``, so that a run that was interrupted goes on where it was; ``--again`` follows the advice anew. The exit code is 1
where a figure is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from openneutron.device.cache import record
from openneutron.device.files import write
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
FOLDER = Path(tempfile.gettempdir()) / "openneutron-advice"


def main() -> int:
    """Follow the advice, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.advice", description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    changes: list[Followed] = []
    print(
        "| network | chip | budget | latency, SRAM | advice | lines | wrong |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for network in given.networks:
        for target in given.targets:
            for found in rows(network, target, given.folder, given.again):
                print(line(found), flush=True)
                for item in found:
                    if not item.is_true:
                        print(f"  wrong: {item}", flush=True)
                changes += found
    wrong = sum(not item.is_true for item in changes)
    advised = sum(item.is_advice for item in changes)
    largest = max((item.deviation for item in changes), default=0.0)
    print(
        f"{len(changes)} changes were compiled, {advised} of them advice; {wrong} have other figures than the report says. The largest "
        f"difference of a latency is {100 * largest:.2g}%."
    )
    return int(wrong > 0)


def rows(network: str, target: str, folder: Path, again: bool = False) -> Iterator[list[Followed]]:
    """Yield the advice about a network on a chip with the chip's budget, and with one in the middle of its lines. What is in the
    folder is not followed again."""
    kept = folder / "rows" / f"{Path(network).stem}-{target}.json"
    known = [] if again or not kept.exists() else json.loads(kept.read_bytes())
    cache = folder / "cache"
    for place in range(2):
        if place == len(known):
            options: tuple[str, ...] = ()
            if place:
                options = ("--sram-budget", str(middle_budget(report(network, ("--target", target), cache))))
            known.append([asdict(item) for item in followed(network, target, options, cache)])
            content = json.dumps(known).encode()
            write({kept: content}, folder)
            known = json.loads(content)
        yield [record(Followed, item) for item in known[place]]


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
