# SPDX-License-Identifier: BSD-3-Clause
"""The evaluation of shards in parallel: in processes on this computer, and on the workers of a Dask scheduler.

``python -m`` of this module is such a process. The parent writes pickles to its stdin: the bytes of a job, and then shards. The process writes
pickles to stdout: READY, and then an answer for each shard. Both run this package as the same user, so that pickles are safe.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.features.evaluation.job import Answer, cores, evaluated, open_early
from openneutron.features.evaluation.samples import Shard

MOST_LOSSES = 3
"""The evaluation fails when this number of processes have ended while they evaluated the same shard."""


STARTING_SECONDS = 5
"""The CPU time in which a process loads PyTorch and ExecuTorch, in seconds. If the user gives no number of processes, a
process is started only for more work than this."""

MEASURED = 2
"""The number of shards that this process evaluates before it decides on further processes. The time of the last one is
measured, since the first one includes preparations."""


def answers(job: bytes, shards: Sequence[Shard], workers: int | None) -> Generator[tuple[int, Answer]]:
    """Yield the index and the answer of each shard, as soon as the shard is finished.

    ``workers`` is the number of processes. None stands for the number of cores, or fewer if starting a process would take longer than it saves.
    This process evaluates shards too, and begins while the others load their libraries. If a process ends unexpectedly, its shard is evaluated
    again.

    Raises MissingToolError if a shard ended several processes.
    """
    pool = _Pool(job, shards)
    try:
        for _ in range(min(workers or 1, len(shards)) - 1):
            pool.start()
        missing, measured = len(shards), 0
        while missing:
            start = time.perf_counter()
            place = pool.next_place()
            here = [] if place is None else [(place, evaluated(job, shards[place]))]
            measured += 1
            if workers is None and measured == MEASURED:
                for _ in range(helpers((time.perf_counter() - start) * missing)):
                    pool.start()
            ready = [*here, *pool.finished(wait=not here)]
            missing -= len(ready)
            yield from ready
    finally:
        pool.close()


def helpers(seconds: float) -> int:
    """Return the number of processes to start for work that takes one process ``seconds``."""
    return max(0, min(cores() - 1, int(seconds / STARTING_SECONDS) - 1))


class _Pool:
    """A pool of processes that take shards from one queue. Each process is served by a thread of this process."""

    def __init__(self, job: bytes, shards: Sequence[Shard]) -> None:
        self._job = job
        self._shards = shards
        self._places: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, Answer] | MissingToolError | None] = queue.SimpleQueue()
        self._losses = [0] * len(shards)
        self._closed = threading.Event()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        for place in range(len(shards)):
            self._places.put(place)

    def start(self) -> None:
        """Start one more process."""
        threading.Thread(target=self._feed, daemon=True).start()

    def next_place(self) -> int | None:
        """Return the index of the next shard in the queue; None if the queue is empty."""
        try:
            return self._places.get_nowait()
        except queue.Empty:
            return None

    def finished(self, wait: bool) -> list[tuple[int, Answer]]:
        """Return the indices and answers of shards that other processes have finished. With ``wait``, wait until there
        is one, or until a process ends: it may have left a shard in the queue. Raises MissingToolError where a shard
        ended several processes."""
        found: list[tuple[int, Answer]] = []
        while wait or not self._done.empty():
            item = self._done.get()
            wait = False
            if isinstance(item, MissingToolError):
                raise item
            if item is not None:
                found.append(item)
        return found

    def close(self) -> None:
        """End all processes."""
        self._closed.set()
        with self._lock:
            for child in self._children:
                with suppress(OSError):
                    child.kill()

    def _feed(self) -> None:
        # A system without memory for another process leaves the shards to those that run.
        with suppress(OSError):
            while not self._closed.is_set() and self._serve():
                pass
        self._done.put(None)

    def _serve(self) -> bool:
        """Start a process and let it evaluate shards until the queue is empty. Return whether a process has to replace
        it."""
        child = self._child()
        assert child.stdin is not None and child.stdout is not None
        place = None
        try:
            pickle.dump(self._job, child.stdin)
            child.stdin.flush()
            pickle.load(child.stdout)
            while (place := self.next_place()) is not None:
                pickle.dump(self._shards[place], child.stdin)
                child.stdin.flush()
                self._done.put((place, pickle.load(child.stdout)))
            return False
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._lost(place)
        finally:
            self._end(child)

    def _lost(self, place: int | None) -> bool:
        """Handle the end of a process that was evaluating the shard ``place``. Return whether another process has to
        replace it.

        The shard goes back into the queue, and the result is True. If ``MOST_LOSSES`` processes have ended on the
        shard, report a MissingToolError in place of its answer, and return False. Also return False if the process
        had no shard, or if the pool is closed.
        """
        if place is None or self._closed.is_set():
            return False
        self._losses[place] += 1
        if self._losses[place] < MOST_LOSSES:
            self._places.put(place)
            return True
        shard = self._shards[place]
        self._done.put(
            MissingToolError(
                f"evaluate: samples {shard.start} to {shard.stop - 1} ended {MOST_LOSSES} processes that ran them, perhaps for want "
                "of memory. Use fewer processes with --workers."
            )
        )
        return False

    def _child(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
        }
        with self._lock:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends them
            )
            self._children.add(child)
        if self._closed.is_set():
            child.kill()
        return child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        child.wait()
        with self._lock:
            self._children.discard(child)


CONNECTING_SECONDS = 10
"""The time that a scheduler has to answer, in seconds."""

WORKER_SECONDS = 60
"""The time to wait for the first worker of a scheduler that has none, in seconds."""

LOSSES = 10
"""The number of workers that may be lost while they evaluate the same shard."""

_RUNNING = threading.Lock()
"""A lock that allows one evaluation at a time in a worker process with several threads. PyTorch's number of threads and
the redirection of stderr are settings of the whole process."""


def dask_required() -> Any:
    """Return Dask's package ``distributed``. Raises MissingToolError where it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "scheduler: a Dask cluster takes the package 'distributed', which is not installed: "
            "pip install 'openneutron[cluster]'."
        ) from error


def answers_of_cluster(job: bytes, shards: Sequence[Shard], address: str) -> Generator[tuple[int, Answer]]:
    """Yield the index and the answer of each shard when a worker of the scheduler has finished the shard.

    If a worker is lost, the scheduler gives its shards to other workers. The job is sent as the result of a task. If
    the worker that holds this result is lost, the scheduler runs the task again on another one.

    Raises MissingToolError where distributed is not installed. Raises InvalidOptionError where the scheduler does not
    answer or has no workers, or where its workers can't run this package.
    """
    distributed = dask_required()
    with _client(distributed, address) as client:
        common = client.submit(_itself, job, pure=False)
        futures = {
            client.submit(_evaluated, common, shard, pure=False, retries=LOSSES): place
            for place, shard in enumerate(shards)
        }
        for future in distributed.as_completed(futures, loop=client.loop):
            yield futures[future], _answer(future, address)


def _itself(job: bytes) -> bytes:
    return job


def _evaluated(job: bytes, shard: Shard) -> Answer:
    with _RUNNING:
        return evaluated(job, shard)


@contextmanager
def _client(distributed: Any, address: str) -> Iterator[Any]:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=CONNECTING_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InvalidOptionError(
            f"scheduler: nothing answers at '{address}'. Start `dask scheduler`, and give the address that it prints, such as "
            "tcp://localhost:8786."
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError as error:
            raise InvalidOptionError(
                f"scheduler: '{address}' has no workers. Start some with `dask worker {address}`."
            ) from error
        yield client
    finally:
        client.close(timeout=CONNECTING_SECONDS)


def _answer(future: Any, address: str) -> Answer:
    try:
        found: Answer = future.result()
    except ModuleNotFoundError as error:
        raise InvalidOptionError(
            f"scheduler: the workers of '{address}' have no package '{error.name}'. Install what this process has there."
        ) from error
    except Exception as error:  # distributed's own classes, and those of pickle
        words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise InvalidOptionError(
            f"scheduler: the workers of '{address}' can't evaluate a shard: {type(error).__name__}: {words}"
        ) from error
    return found


READY = "ready"
"""What a process writes when it has opened the job."""


def main() -> None:
    """Evaluate shards from stdin until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    try:
        job: bytes = pickle.load(sys.stdin.buffer)
        open_early(job)
        pickle.dump(READY, answers)
        answers.flush()
        while True:
            shard: Shard = pickle.load(sys.stdin.buffer)
            pickle.dump(evaluated(job, shard), answers)
            answers.flush()
    except (EOFError, BrokenPipeError):  # the parent has what it needs, or is gone
        return


if __name__ == "__main__":
    main()
