# SPDX-License-Identifier: BSD-3-Clause
"""The queue of runs: order, results, refusals and time-outs on one thread, and eight threads under the thread sanitizer."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_bool, c_void_p
from pathlib import Path

import pytest

from openneutron.device.simulator import KERNEL_LEVEL, CallHook, DataConfig, TraceConfig, library
from tests.driver.sanitized import RUNTIME, ran, sanitized
from tests.support import programs
from tests.support.altered_programs import CODES
from tests.support.c_api import Buffers, Counter, Port, Prepared

JOBS = 16
"""The capacity of the queue as it is built (NEUTRON_QUEUE_JOBS)."""

HOST = RUNTIME / "ports" / "host"
SOURCES = (HOST / "host_queue.c", Path(__file__).parent / "queue.c")


class Job(Buffers):
    """Buffers with a NeutronDataConfig that stays where it is."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.inputs = (c_void_p * 1)(self.x.ctypes.data)
        self.outputs = (c_void_p * 4)(self.y.ctypes.data, self.scratch.ctypes.data, None, None)
        self.data = DataConfig(self.inputs, self.outputs, None, None)
        self.y[:] = 0

    def add(self, model: Prepared) -> int:
        return int(library().neutronRunNonBlocking(model.handle, byref(self.data)))

    def wait(self, model: Prepared) -> int:
        return int(library().neutronWait(model.handle, byref(self.data)))

    def queued(self, model: Prepared) -> int:
        return int(library().neutronRunQueued(model.handle, byref(self.data)))


def is_ready(model: Prepared) -> bool:
    ready = c_bool(False)
    assert library().neutronIsReady(model.handle, byref(ready)) == 0
    return ready.value


@pytest.fixture
def deferred() -> Iterator[None]:
    """A queue of one thread whose jobs wait for a poll or a wait."""
    nothing = (c_void_p * 5)()
    library().neutronPoll.restype = c_bool
    assert library().neutronSetQueue(byref(nothing)) == 0
    yield
    assert library().neutronSetQueue(None) == 0


def test_without_a_port_a_job_runs_at_once(prepared: Prepared) -> None:
    job = Job()
    assert job.add(prepared) == 0
    assert job.right()
    assert is_ready(prepared)
    assert job.wait(prepared) == 0
    assert job.wait(prepared) == CODES["NO_JOB"]


def test_jobs_run_in_order_by_poll(prepared: Prepared, deferred: None) -> None:
    other = Prepared(programs.striped((1, 6, 5, 3)))
    jobs = [Job(seed) for seed in range(4)]
    models = [prepared, other, prepared, other]
    for job, model in zip(jobs, models, strict=True):
        assert job.add(model) == 0
    for done in range(4):
        assert [job.right() for job in jobs] == [number < done for number in range(4)]
        assert (is_ready(prepared), is_ready(other)) == (done >= 3, False)
        assert library().neutronPoll()
    assert not library().neutronPoll()
    assert is_ready(other)
    assert [job.wait(model) for job, model in zip(jobs, models, strict=True)] == [0] * 4
    other.close()


def test_a_wait_runs_the_jobs_in_front(prepared: Prepared, deferred: None) -> None:
    jobs = [Job(seed) for seed in range(3)]
    for job in jobs:
        assert job.add(prepared) == 0
    assert jobs[1].wait(prepared) == 0
    assert [job.right() for job in jobs] == [True, True, False]
    assert jobs[2].wait(prepared) == 0
    assert jobs[0].wait(prepared) == 0


def test_a_full_queue(prepared: Prepared, deferred: None) -> None:
    jobs = [Job(seed) for seed in range(JOBS + 1)]
    assert [job.add(prepared) for job in jobs] == [0] * JOBS + [CODES["QUEUE_FULL"]]
    assert library().neutronSetQueue(None) == CODES["QUEUE_FULL"]
    while library().neutronPoll():
        pass
    assert jobs[JOBS].queued(prepared) == CODES["QUEUE_FULL"], "done jobs keep their places, and nobody else waits"
    assert jobs[5].wait(prepared) == 0
    assert jobs[JOBS].queued(prepared) == 0
    assert all(job.right() for job in jobs)
    assert [job.wait(prepared) for job in jobs[:5] + jobs[6:JOBS]] == [0] * (JOBS - 1)


def test_the_result_of_a_run_is_that_of_the_wait(prepared: Prepared, deferred: None) -> None:
    job = Job()
    job.outputs[0] = None
    assert job.add(prepared) == 0
    assert job.wait(prepared) == CODES["NULL"]
    assert job.queued(prepared) == CODES["NULL"]
    driver = library()
    assert driver.neutronRunNonBlocking(None, byref(job.data)) == CODES["HANDLE"]
    assert driver.neutronRunQueued(None, byref(job.data)) == CODES["HANDLE"]
    assert driver.neutronRunNonBlocking(prepared.handle, None) == CODES["NULL"]
    assert driver.neutronRunQueued(prepared.handle, None) == CODES["NULL"]
    assert driver.neutronIsReady(prepared.handle, None) == CODES["NULL"]
    assert driver.neutronIsReady(None, byref(c_bool())) == CODES["HANDLE"]
    assert driver.neutronServe() == CODES["NULL"]


def test_a_hook_adds_a_job_and_must_not_wait_for_it(prepared: Prepared, deferred: None) -> None:
    first, second = Job(0), Job(1)
    errors: list[int] = []

    def hook(_user: int | None, operator: int, _kernel: int, _cycles: int) -> None:
        if operator == 0 and not errors:
            errors.extend((second.add(prepared), second.wait(prepared)))

    trace = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(hook), None)
    library().neutronSetTrace(prepared.handle, byref(trace))
    assert first.queued(prepared) == 0
    assert errors == [0, CODES["NESTED_WAIT"]]
    assert not second.right()
    assert second.wait(prepared) == 0
    assert second.right()


def test_the_time_of_a_job_begins_with_its_run(port: Port, deferred: None) -> None:
    """Time in the queue does not count; a job out of time leaves the next one alone."""
    now = [0]
    port.now_seconds = Counter(lambda: now[0])
    library().neutronSetPort(byref(port))
    model = Prepared(programs.inverted_twice(), 2)
    jobs = [Job(seed) for seed in range(3)]
    for job in jobs:
        assert job.add(model) == 0
    now[0] = 100
    calls: list[int] = []

    def hook(_user: int | None, operator: int, _kernel: int, _cycles: int) -> None:
        calls.append(operator)
        now[0] += 3 if len(calls) == 3 else 0

    trace = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(hook), None)
    library().neutronSetTrace(model.handle, byref(trace))
    assert [job.wait(model) for job in jobs] == [0, CODES["TIMEOUT"], 0]
    assert calls == [0, 1, 0, 0, 1]
    assert [job.right() for job in jobs] == [True, False, True]
    model.close()


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sanitized(tmp_path_factory.mktemp("queue"), SOURCES, f"-I{HOST}")


@pytest.mark.parametrize("mode", ["served", "stopped", "unserved"])
def test_eight_threads_on_one_queue(mode: str, threads: Path, tmp_path: Path) -> None:
    """1,000 runs with one scratch buffer for all: the bytes of each, no data race and no deadlock."""
    done = ran(threads, tmp_path, mode, "1000")
    assert (done.returncode, done.stderr) == (0, "")
    seeds = [own * 1000 + run for own in range(8) for run in range(125)]
    assert int(done.stdout) == sum((seed * 31 + byte * 7) % 256 for seed in seeds for byte in range(90))


def test_the_host_library_serves_a_queue(prepared: Prepared) -> None:
    """The thread of the host library runs a job while the caller does something else."""
    driver = library()
    driver.neutron_host_queue_start.restype = c_bool
    driver.neutron_host_queue_stop.restype = None
    assert driver.neutron_host_queue_start()
    assert not driver.neutron_host_queue_start()
    jobs = [Job(seed) for seed in range(JOBS)]
    assert [job.add(prepared) for job in jobs] == [0] * JOBS
    while not is_ready(prepared):
        ctypes.pythonapi.PyThread_get_thread_ident()
    assert all(job.right() for job in jobs)
    assert [job.wait(prepared) for job in jobs] == [0] * JOBS
    driver.neutron_host_queue_stop()
    assert driver.neutronSetQueue(None) == 0
