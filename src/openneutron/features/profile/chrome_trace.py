# SPDX-License-Identifier: BSD-3-Clause
"""The modelled schedule as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (complete events ``X`` and
metadata events ``M``, times in microseconds).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from openneutron.features.profile.timeline import Slice, Track
from openneutron.targets import Target

PROCESS = 1
THREADS = {track: number for number, track in enumerate(Track, 1)}


def chrome_trace(title: str, slices: Sequence[Slice], target: Target) -> bytes:
    """Return the trace of a run. A slice's arguments have its exact cycles; its times are rounded to nanoseconds."""
    events = [
        *_names(f"{title}, modelled on {target.title}", target),
        *(_event(item, target) for item in slices if item.cycles),
    ]
    facts = {"target": target.name, "clock_mhz": target.clock.value}
    data = {"displayTimeUnit": "ns", "otherData": facts, "traceEvents": events}
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _names(title: str, target: Target) -> Iterable[dict[str, Any]]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": title}}
    for track, thread in THREADS.items():
        if track is Track.DATA_MOVER and not target.moves_tiles:
            continue
        place = {"ph": "M", "pid": PROCESS, "tid": thread}
        yield {**place, "name": "thread_name", "args": {"name": track.value}}
        yield {**place, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _event(item: Slice, target: Target) -> dict[str, Any]:
    start, end = (round(cycle * 1e3 / target.clock.value) for cycle in (item.start, item.end))
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": THREADS[item.track],
        "name": item.name,
        "cat": item.kind.value,
        "ts": start / 1e3,
        "dur": (end - start) / 1e3,
        "args": {"start_cycle": item.start, "cycles": item.cycles, **item.details},
    }
