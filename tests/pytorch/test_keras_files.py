# SPDX-License-Identifier: BSD-3-Clause
"""A Keras file the whole way to a result, and its errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import openneutron
from openneutron import LoadingOptions
from openneutron.device.forms import KERAS, form_of
from openneutron.errors import InvalidModelError, InvalidOptionError


@pytest.fixture(scope="module")
def keras() -> Any:
    """Keras on PyTorch. Its import takes seconds."""
    os.environ["KERAS_BACKEND"] = "torch"
    return pytest.importorskip("keras", reason="the extra [keras] is not installed")


def saved(model: Any, folder: Path) -> Path:
    path = folder / "net.keras"
    model.save(path)
    return path


def small(keras: Any, size: int | None = 8) -> Any:
    layers = keras.layers
    keras.utils.set_random_seed(0)
    image = keras.Input((size, size, 3), name="image")
    y = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    y = layers.BatchNormalization()(y)
    return keras.Model(image, layers.Dense(4)(layers.GlobalAveragePooling2D()(y)))


def test_a_file_is_compiled_and_runs(keras: Any, tmp_path: Path) -> None:
    model = small(keras)
    path = saved(model, tmp_path)
    path.rename(tmp_path / "net.bin")
    assert form_of(tmp_path / "net.bin") is KERAS
    samples = [torch.randn(1, 8, 8, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    program = openneutron.compile(tmp_path / "net.bin", calibration=samples)
    assert len(program.partitions) == 1 and not program.report.on_cpu
    with torch.no_grad():
        wanted = model(samples[0], training=False)
    error = program.run(samples[0])[0] - wanted
    assert 10 * torch.log10((wanted**2).sum() / (error**2).sum()) > 30


def test_an_axis_that_is_not_fixed_is_given(keras: Any, tmp_path: Path) -> None:
    path = saved(small(keras, None), tmp_path)
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(path)
    assert str(caught.value) == (
        "'net.keras': the shape ?x?x?x3 of the input 'image' is not fixed. Give it: --input-shape image=1x1x1x3, with your sizes."
    )
    program = KERAS.read(path, LoadingOptions(input_shapes={"image": (1, 6, 6, 3)}))
    assert program.example_inputs[0][0].shape == (1, 6, 6, 3)
    with pytest.raises(InvalidOptionError, match=r"'image' of 'net.keras' has the size 3 on axis 3; 4 is given."):
        KERAS.read(path, LoadingOptions(input_shapes={"image": (1, 6, 6, 4)}))


def test_code_in_a_file_is_not_run(keras: Any, tmp_path: Path) -> None:
    path = saved(keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2)]), tmp_path)
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(path)
    assert str(caught.value) == (
        "'net.keras' can't be read: it has a function in a Lambda layer, which is code. Give --trust for a file whose author you trust."
    )
    trusted: Callable[..., Any] = KERAS.read(path, LoadingOptions(trust=True)).module()
    assert torch.equal(trusted(torch.ones(1, 4)), torch.full((1, 4), 2.0))


def test_a_model_in_memory_needs_no_example_inputs(keras: Any) -> None:
    model = keras.Sequential([keras.Input((None, 4), name="rows"), keras.layers.Dense(2)])
    samples = [torch.linspace(-1, 1, 12).reshape(1, 3, 4)]
    loading = LoadingOptions(input_shapes={"rows": (1, 3, 4)})
    assert len(openneutron.compile(model, calibration=samples, loading=loading).partitions) == 1
    assert len(openneutron.compile(model, (torch.zeros(1, 3, 4),), calibration=samples).partitions) == 1
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(model, calibration=samples)
    assert str(caught.value) == (
        "'model': the shape ?x?x4 of the input 'rows' is not fixed. Give it: --input-shape rows=1x1x4, with your sizes."
    )


def test_a_file_that_is_cut(keras: Any, tmp_path: Path) -> None:
    path = saved(small(keras), tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidModelError) as caught:
        KERAS.read(path)
    assert str(caught.value) == (
        "'net.keras' is no .keras file, or is cut: it has no end of a zip archive. Save or copy it again."
    )


def test_a_class_that_is_not_registered(keras: Any, tmp_path: Path) -> None:
    class Doubled(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return 2 * x

    with pytest.raises(InvalidModelError) as caught:
        KERAS.read(saved(keras.Sequential([keras.Input((4,)), Doubled()]), tmp_path))
    assert str(caught.value) == (
        "'net.keras' can't be read: no module has registered its class 'Doubled'. Name the module with --import, or compile the model in Python."
    )
