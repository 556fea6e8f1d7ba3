# SPDX-License-Identifier: BSD-3-Clause
"""Shards on a Dask cluster, by the package ``distributed``."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.features.evaluation.job import Answer, evaluated
from openneutron.features.evaluation.samples import Shard

CONNECTING_SECONDS = 10
"""The time that a scheduler has to answer."""

WORKER_SECONDS = 60
"""The time that the first worker has to come, where a scheduler has none."""

LOSSES = 10
"""The workers that may be lost while they evaluate one and the same shard."""

_RUNNING = threading.Lock()
"""One evaluation at a time in a worker process, however many threads it has: outputs of libraries on stderr, and PyTorch's
number of threads, belong to the process."""


def required() -> Any:
    """Return Dask's package ``distributed``. Raises MissingToolError where it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "scheduler: a Dask cluster takes the package 'distributed', which is not installed: "
            "pip install 'openneutron[cluster]'."
        ) from error


def answers(job: bytes, shards: Sequence[Shard], address: str) -> Generator[tuple[int, Answer]]:
    """Yield the place of each shard with its answer, as they are finished by the workers of a scheduler.

    The shards of a worker that is lost go to the others. The job is itself the result of a task, which the scheduler makes
    again on another worker where it is lost.

    Raises MissingToolError where distributed is not installed, InvalidOptionError where the scheduler does not answer, has
    no workers, or its workers can't run this package.
    """
    distributed = required()
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
