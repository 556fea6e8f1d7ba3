# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.share_arena``: models that run one after the other in one arena, within one budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import litert
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.errors import BudgetError, InvalidOptionError
from tests.support import random_images
from tests.support.stream_files import streaming_file

STATE_BYTES = 16
"""The state of ``stream``."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A network of images, another one, and a stream with a state."""
    contents = {
        "image": litert.write(random_images.chain_graph(3)),
        "other": litert.write(random_images.chain_graph(5)),
        "stream": streaming_file(np.full((1, 2, 4, 2), -3, np.int8)),
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.tflite").write_bytes(content)
    return {name: tmp_path / f"{name}.tflite" for name in contents}


def compiled(path: Path, **options: object) -> CompiledLiteRTModel:
    made = openneutron.compile(path, options=openneutron.CompileOptions(**options))  # type: ignore[arg-type]
    assert isinstance(made, CompiledLiteRTModel)
    return made


def test_the_arena_is_the_largest_and_states_are_beside_it(files: dict[str, Path]) -> None:
    models = [compiled(path) for path in files.values()]
    shared = openneutron.share_arena(models)
    runs = [model.report.sram_bytes - model.report.state_bytes for model in models]
    assert shared.models == tuple(models)
    assert shared.memory.arena_bytes == max(runs)
    assert shared.memory.state_bytes == STATE_BYTES
    assert shared.memory.sram_bytes == max(runs) + STATE_BYTES
    assert shared.memory.separate_bytes == sum(runs) + STATE_BYTES


def test_a_model_leaves_the_budget_to_the_states_of_the_others(files: dict[str, Path]) -> None:
    image, stream = compiled(files["image"]), compiled(files["stream"])
    budget = image.report.sram_bytes
    shared = openneutron.share_arena([image, stream], sram_budget=budget)
    smaller, same = shared.models
    assert smaller.report.sram_bytes <= budget - STATE_BYTES < image.report.sram_bytes
    assert same is stream
    assert shared.memory.sram_bytes <= budget
    (x,) = (
        np.random.default_rng(0).integers(-128, 128, shape, np.int8)
        for shape in [image.graphs[0][image.graphs[0].inputs[0]].shape]
    )
    np.testing.assert_array_equal(smaller.run(x)[0], image.run(x)[0])


def test_a_model_that_does_not_fit_beside_the_states(files: dict[str, Path]) -> None:
    image, stream = compiled(files["image"]), compiled(files["stream"])
    with pytest.raises(BudgetError) as caught:
        openneutron.share_arena([image, stream], sram_budget=64)
    least = caught.value.least_bytes
    kib = -(-least // 1024)
    assert str(caught.value) == (
        f"share_arena: 'image.tflite' needs {least / 1024:.1f} KiB ({least} bytes) of SRAM, 16 bytes of which are states of the other models; "
        f"the budget of all models is 0.1 KiB (64 bytes). Give at least {kib} KiB with --sram-budget (sram_budget={kib * 1024} in Python), "
        "or a smaller input."
    )
    assert openneutron.share_arena([image, stream], sram_budget=least).memory.sram_bytes <= least


def test_each_memory_region_holds_the_model_that_needs_the_most_there(files: dict[str, Path]) -> None:
    budget = {"dtcm": 1024, "sram": 4096}
    models = [compiled(path, target="cortex-m7", sram_budget=budget) for path in files.values()]
    shared = openneutron.share_arena(models, sram_budget=budget)
    near, far = shared.memory.regions_bytes
    assert near == max(model.report.partitions[0].report.arena_bytes for model in shared.models) <= 1024
    assert far + STATE_BYTES <= 4096
    assert shared.memory.sram_bytes == near + far + STATE_BYTES


def test_equal_weights_count_once(files: dict[str, Path], tmp_path: Path) -> None:
    twin = tmp_path / "twin.tflite"
    twin.write_bytes(files["image"].read_bytes())
    first, second = compiled(files["image"]), compiled(twin)
    memory = openneutron.share_arena([first, second]).memory
    assert memory.equal_weights_bytes == first.report.weights_bytes > 0
    assert memory.flash_bytes == first.report.weights_bytes + 2 * first.report.microcode_bytes


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ((), {}, "share_arena: there is no model. Give two or more."),
        (("image",), {}, "share_arena: there is 1 model. Give two or more."),
        (
            ("image", "image"),
            {},
            "share_arena: two models have the name 'image.tflite'. Give each model a name of its own.",
        ),
        (
            ("image", "other"),
            {"target": "mcxn94x"},
            "share_arena: 'image.tflite' is compiled for imxrt700 and 'other.tflite' for mcxn94x. Compile both for one target.",
        ),
    ],
)
def test_models_that_cannot_share(
    names: tuple[str, ...], options: dict[str, str], message: str, files: dict[str, Path]
) -> None:
    models = [compiled(files[name], **(options if place else {})) for place, name in enumerate(names)]
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.share_arena(models)
    assert str(caught.value) == message
