# SPDX-License-Identifier: BSD-3-Clause
"""Metrics of single samples, and their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openneutron.device.data import Sample
from openneutron.errors import InvalidOptionError
from openneutron.features.evaluation.metrics import check, metric, usual
from openneutron.features.evaluation.results import PairResult, sqnr_text
from openneutron.features.evaluation.samples import compared

SCORES = [np.array([[0.1, 0.4, 0.4, 0.1]], np.float32)]


def sample(label: Any) -> Sample:
    return Sample((), label, "seven.png")


@pytest.mark.parametrize(("label", "first"), [(1, 1.0), (2, 0.0), (0, 0.0)])
def test_the_first_of_equal_values_counts_as_the_largest(label: int, first: float) -> None:
    assert metric("top1").score(SCORES, sample(label)) == first
    assert metric("top5").score(SCORES, sample(label)) == 1.0


def test_a_value_that_is_no_number_is_never_right() -> None:
    assert metric("top5").score([np.array([np.nan, 1.0], np.float32)], sample(0)) == 0.0


def test_mse_is_the_mean_over_the_values() -> None:
    assert metric("mse").score([np.array([[1.0, 3.0]], np.float32)], sample(np.array([1.0, 1.0]))) == 2.0


def test_labels_decide_the_usual_metric() -> None:
    assert [usual(label) for label in (None, 3, np.int64(3), np.ones(2), 0.5)] == [None, "top1", "top1", "mse", "mse"]


@pytest.mark.parametrize(
    ("name", "label", "message"),
    [
        (
            "top1",
            None,
            "metric: top1 takes the number of a class for each sample; sample 'seven.png' has no label. Leave the metric out "
            "to compare the sides alone.",
        ),
        (
            "top1",
            4,
            "metric: the label of sample 'seven.png' is 4; the model has the classes 0 to 3. Correct the labels, or evaluate "
            "the model that they belong to.",
        ),
        (
            "top5",
            np.ones(3, np.float32),
            "metric: top5 takes the number of a class for each sample; the label of sample 'seven.png' is float32[3]. For "
            "values there is mse.",
        ),
        (
            "mse",
            np.ones(3, np.float32),
            "metric: mse takes an array like the first output, float32[1,4]; the label of sample 'seven.png' is float32[3]. "
            "Store the labels in that shape.",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused(name: str, label: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        metric(name).score(SCORES, sample(label))
    assert str(caught.value) == message


def test_images_have_no_largest_class() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        metric("top1").score([np.zeros((1, 3, 8, 8), np.float32)], sample(1))
    assert str(caught.value) == (
        "metric: top1 takes one row of values for the classes; the first output is float32[1,3,8,8]. Write a metric of your "
        "own: file.py:function."
    )


OWN = """
def length(outputs, sample):
    return len(outputs[0][0]) + sample.label

def broken(outputs, sample):
    raise KeyError("boxes")

def wordy(outputs, sample):
    return "high"

def endless(outputs, sample):
    return float("inf")
"""


def test_a_function_of_a_file_gets_outputs_and_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_metric.py").write_text(OWN)
    assert metric("own_metric.py:length").score(SCORES, sample(3)) == 7.0
    messages = {
        "broken": "metric: on sample 'seven.png': 'own_metric.py:broken', line 6: KeyError: 'boxes'. Correct the function.",
        "wordy": "metric: 'own_metric.py:wordy' returned str for sample 'seven.png'; a metric returns a number.",
        "endless": "metric: 'own_metric.py:endless' returned inf for sample 'seven.png'; a metric returns a finite number.",
    }
    for name, message in messages.items():
        with pytest.raises(InvalidOptionError) as caught:
            metric(f"own_metric.py:{name}").score(SCORES, sample(3))
        assert str(caught.value) == message


def test_unknown_metrics_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_metric.py").write_text(OWN)
    messages = {
        "top2": "metric: 'top2' is unknown. A metric is top1, top5, mse, map or file.py:function. Did you mean 'top5'?",
        "absent.py:f": "metric: 'absent.py' does not exist. A metric is top1, top5, mse, map or file.py:function.",
        "own_metric.py:lenth": "'own_metric.py' has no function 'lenth'. Did you mean 'length'?",
    }
    for text, message in messages.items():
        with pytest.raises(InvalidOptionError) as caught:
            check(text)
        assert str(caught.value) == message


def test_indices_are_compared_and_are_no_signal() -> None:
    values, places = np.array([3.0, 4.0], np.float32), np.array([900], np.int64)
    record = compared([values, places, places > 0], [values + 1, places + 1, places > 0])
    assert (record.identical, record.signal, record.noise) == (False, 25.0, 2.0)
    assert not compared([values, places], [values, places + 1]).identical


def test_fillers_are_no_signal() -> None:
    """Masked scores are infinite, or the lowest number of their type."""
    values = np.array([3.0, -np.inf, np.finfo(np.float32).min, np.nan, 4.0], np.float32)
    record = compared([values], [np.where(np.abs(values) < 9, values + 1, values)])
    assert (record.identical, record.signal, record.noise) == (False, 25.0, 2.0)
    assert compared([values], [values]).identical and compared([values], [values]).noise == 0
    lost = compared([values], [np.full(5, np.inf, np.float32)])
    assert np.isfinite(lost.noise) and lost.noise > 1e70


def test_pairs_of_sides_without_a_ratio_name_the_reason() -> None:
    sides = ("float", "int8")
    assert sqnr_text(PairResult(sides, None, 3, None), samples=3) == "no difference"
    assert sqnr_text(PairResult(sides, None, 2, None), samples=3) == "no signal"
    assert sqnr_text(PairResult(sides, None, 0, 31.25), samples=3) == "31.2 dB"
