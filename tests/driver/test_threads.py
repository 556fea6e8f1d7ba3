# SPDX-License-Identifier: BSD-3-Clause
"""Several threads in the driver at once: the results, and the thread sanitizer's opinion."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.driver.sanitized import ran, sanitized
from tests.support.c_api import Buffers, Prepared

THREADS = (Path(__file__).parent / "threads.c",)


def test_one_handle_in_several_threads(prepared: Prepared) -> None:
    """A run keeps its state to itself; each thread brings its own buffers."""

    def worker(seed: int) -> bool:
        buffers = Buffers(seed=seed)
        return all(buffers.run(prepared) == 0 and buffers.right() for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(worker, range(8)))


def test_no_data_race(tmp_path: Path) -> None:
    done = ran(sanitized(tmp_path, THREADS), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_data_race_would_be_seen(tmp_path: Path) -> None:
    """The same with threads that share a buffer: the sanitizer says so, so that its silence above means something."""
    done = ran(sanitized(tmp_path, THREADS, "-DSHARED_SCRATCH"), tmp_path)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
