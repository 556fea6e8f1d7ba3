# SPDX-License-Identifier: BSD-3-Clause
"""Evaluations in several processes: the same results, whatever happens to the processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openneutron
from openneutron.api.evaluate import inputs
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.device.cache import LIBRARIES, code
from openneutron.errors import InvalidOptionError
from openneutron.features.evaluation import Evaluation, processes
from openneutron.features.evaluation.job import NPU, TFLITE, Job, Side, evaluated
from openneutron.features.evaluation.processes import _Pool
from openneutron.features.evaluation.samples import DataSet, Failure, Record, shards
from tests.evaluation.conftest import SAMPLES
from tests.support.recurrent_files import lstm_file


def as_bytes(evaluation: Evaluation) -> str:
    """Return an evaluation as JSON, without its times."""
    data = evaluation.to_dict()
    del data["timings"]
    return json.dumps(data)


def test_the_results_do_not_depend_on_the_number_of_processes(program: CompiledLiteRTModel, folder: Path) -> None:
    found = [openneutron.evaluate(program, folder / "labelled.npz", workers=count) for count in (1, 3, None)]
    assert as_bytes(found[0]) == as_bytes(found[1]) == as_bytes(found[2])
    evaluation = found[0]
    assert (evaluation.samples, evaluation.metric) == (SAMPLES, "top1")
    (pair,) = evaluation.pairs
    assert (pair.sides, pair.agreeing, pair.identical, pair.sqnr_db) == (("int8", "npu"), SAMPLES, SAMPLES, None)
    assert evaluation.notes == ("The .tflite is quantized: there is no float side.",)


def test_samples_in_memory_are_those_of_a_file(program: CompiledLiteRTModel, folder: Path) -> None:
    with np.load(folder / "labelled.npz") as arrays:
        pairs = list(zip(arrays["input0"][:6], arrays["labels"][:6].tolist(), strict=True))
    from_memory = openneutron.evaluate(program, pairs, workers=1)
    npu = from_memory.side("npu")
    expected = sum(int(program.run(_quantized(program, image))[0].argmax()) == label for image, label in pairs)
    assert npu is not None and npu.right == expected
    assert from_memory.data == "list"


def _quantized(program: CompiledLiteRTModel, image: np.ndarray) -> np.ndarray:
    (wanted,) = inputs(program)
    assert wanted.quant is not None
    stored = np.round(image / np.float32(wanted.quant.scale)) + wanted.quant.zero_point
    return np.clip(stored, -128, 127).astype(np.int8).reshape(wanted.shape)


def test_an_interrupt_leaves_the_results_of_the_samples_before_it(program: CompiledLiteRTModel, folder: Path) -> None:
    def interrupt(_step: str, done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    (first, *_) = shards(SAMPLES, None)
    found = openneutron.evaluate(program, folder / "labelled.npz", workers=1, progress=interrupt)
    assert (found.samples, found.complete) == (first.stop, False)
    before = openneutron.evaluate(program, folder / "labelled.npz", workers=1)
    assert (before.samples, before.complete) == (SAMPLES, True)
    assert f"{first.stop} samples until the interrupt" in " ".join(found.summary().split())


def test_an_interrupt_before_the_first_result_is_raised(program: CompiledLiteRTModel, folder: Path) -> None:
    def interrupt(_step: str, _done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        openneutron.evaluate(program, folder / "labelled.npz", workers=1, progress=interrupt)


def test_without_labels_the_sides_are_compared_alone(program: CompiledLiteRTModel) -> None:
    found = openneutron.evaluate(program, [np.zeros((1, 32, 32, 3), np.float32)], workers=1)
    assert (found.metric, found.worst, [side.metric for side in found.sides]) == (None, (), [None, None])
    assert found.notes[1] == "The samples have no labels: agreement and SQNR alone."


def test_a_label_that_the_model_does_not_have_ends_the_evaluation(program: CompiledLiteRTModel) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.evaluate(program, [(np.zeros((1, 32, 32, 3), np.float32), 10)], workers=1)
    assert str(caught.value) == (
        "metric: the label of sample 'item 0' is 10; the model has the classes 0 to 9. Correct the labels, or evaluate the "
        "model that they belong to."
    )


@pytest.fixture
def job(program: CompiledLiteRTModel, folder: Path) -> Job:
    """The NPU's side alone, on all samples."""
    data = DataSet(str(folder / "labelled.npz"), inputs(program))
    return Job("cifarnet", (Side(NPU, TFLITE, program.buffer),), "top1", data, SAMPLES, code(*LIBRARIES))


def facts(answer: Any) -> list[Any]:
    assert not isinstance(answer, Failure), answer
    return [(record.label, record.sides[0].score, record.sides[0].found) for record in answer]


def test_a_process_that_is_killed_loses_no_shard(job: Job) -> None:
    """This process takes no shard: all answers are from processes that it starts, one of which is killed."""
    parts = shards(SAMPLES, None)
    pool = _Pool(job.to_bytes(), parts)
    try:
        pool.start()
        found = dict(pool.finished(wait=True))
        (child,) = pool._children
        child.kill()
        child.wait()
        while len(found) < len(parts):
            found |= dict(pool.finished(wait=True))
    finally:
        pool.close()
    expected = {place: evaluated(job.to_bytes(), part) for place, part in enumerate(parts)}
    assert {place: facts(answer) for place, answer in found.items()} == {
        place: facts(answer) for place, answer in expected.items()
    }


@pytest.mark.parametrize("command", ["/no/such/program", "/bin/false"])
def test_processes_that_do_not_begin_leave_the_shards_to_this_one(
    job: Job, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(sys, "executable", command)
    pool = _Pool(job.to_bytes(), shards(SAMPLES, None))
    pool.start()
    assert pool.finished(wait=True) == [] and pool.next_place() == 0


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, 0), (9, 0), (10, 1), (24, 3), (1000, 7)])
def test_processes_are_started_where_they_save_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, expected: int
) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 8)
    assert processes.helpers(seconds) == expected


def test_another_version_is_no_worker(job: Job) -> None:
    other = Job(job.model, job.sides, job.metric, job.data, job.count, "another")
    answer = evaluated(other.to_bytes(), shards(SAMPLES, None)[0])
    assert answer == Failure(
        "scheduler: a worker has another version of openneutron, Python or NumPy than this process, which could change "
        "results. Install the same versions on both."
    )


def test_other_data_is_no_data_set(job: Job) -> None:
    other = Job(job.model, job.sides, job.metric, job.data, SAMPLES + 1, job.code)
    answer = evaluated(other.to_bytes(), shards(SAMPLES, None)[0])
    assert answer == Failure(
        "data: a worker finds 70 samples where this process finds 71. Put the same data under the same path on every machine."
    )


def test_shards_cover_the_samples_once() -> None:
    for count in (1, 63, 64, 65, 1797, 10_000):
        parts = shards(count, None)
        assert [place for part in parts for place in range(part.start, part.stop)] == list(range(count))
        assert all(part.stop - part.start <= 64 for part in parts)


def test_records_are_small(job: Job) -> None:
    import pickle

    answer = evaluated(job.to_bytes(), shards(SAMPLES, None)[0])
    assert isinstance(answer, tuple) and isinstance(answer[0], Record)
    assert len(pickle.dumps(answer)) / len(answer) < 300


def test_each_sample_of_a_tflite_begins_with_the_first_state(tmp_path: Path) -> None:
    """LiteRT's interpreter begins each run with a fresh state; the state of a NeutronGraph outlasts a run."""
    (tmp_path / "lstm.tflite").write_bytes(lstm_file(3))
    made = openneutron.compile(tmp_path / "lstm.tflite")
    assert isinstance(made, CompiledLiteRTModel) and any(program.state_size for program in made.programs)
    (wanted,) = inputs(made)
    data = np.random.default_rng(0).integers(-128, 128, (3, *wanted.shape)).astype(np.int8)
    (pair,) = openneutron.evaluate(made, list(data), workers=1).pairs
    assert pair.identical == 3
