# SPDX-License-Identifier: BSD-3-Clause
"""Loaders, datasets and preprocessing functions of users' Python code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from openneutron.device.data import ModelInput, check, source
from openneutron.errors import InvalidOptionError

FLOAT = np.dtype(np.float32)
PAIR = ModelInput((1, 2), FLOAT)
VALUES = torch.arange(14.0).reshape(7, 2)
LABELS = torch.tensor([3, 1, 4, 1, 5, 9, 2])


def taken(given: Any, *inputs: ModelInput, **options: Any) -> list[tuple[list[Any], Any]]:
    found = source(given, inputs or (PAIR,), **options)
    return [([array.tolist() for array in sample.arrays], sample.label) for sample in found]


EXPECTED = [([[row.tolist()]], int(label)) for row, label in zip(VALUES, LABELS, strict=True)]
WITHOUT_LABELS = [(arrays, None) for arrays, _ in EXPECTED]


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(VALUES, LABELS, strict=True))


@pytest.mark.parametrize(
    "given",
    [
        TensorDataset(VALUES, LABELS),
        DataLoader(TensorDataset(VALUES, LABELS), batch_size=3),
        DataLoader(TensorDataset(VALUES, LABELS), batch_size=None),
        DataLoader(Stream(), batch_size=2),
        Stream(),
        [((VALUES[:4],), LABELS[:4]), (VALUES[4:].numpy(), LABELS[4:].tolist())],
    ],
)
def test_datasets_and_loaders_with_labels(given: Any) -> None:
    assert taken(given) == EXPECTED
    found = source(given, [PAIR])
    assert (len(found), len(list(found[2:5])), found[5].label) == (7, 3, 9)
    assert [sample.label for sample in source(given, [PAIR], limit=2)] == [
        3,
        1,
    ]  # the first, and the first or the fourth


@pytest.mark.parametrize("given", [TensorDataset(VALUES), DataLoader(TensorDataset(VALUES)), [VALUES], list(VALUES)])
def test_datasets_and_loaders_without_labels(given: Any) -> None:
    assert taken(given) == WITHOUT_LABELS


def test_several_inputs() -> None:
    flags = ModelInput((1, 1), np.dtype(np.int64))
    expected = [([[row.tolist()], [[int(label)]]], None) for row, label in zip(VALUES, LABELS, strict=True)]
    column = LABELS.reshape(-1, 1)
    assert taken([(VALUES, column)], PAIR, flags) == expected
    assert taken([(VALUES, column, LABELS)], PAIR, flags) == taken([((VALUES, column), LABELS)], PAIR, flags)
    assert [label for _, label in taken([(VALUES, column, LABELS)], PAIR, flags)] == LABELS.tolist()


def test_labels_that_are_no_numbers_of_classes() -> None:
    (first, *_) = source([(VALUES, VALUES)], [PAIR])
    np.testing.assert_array_equal(first.label, [0, 1])
    (first,) = source([(VALUES[:1], 0.5)], [PAIR])
    assert isinstance(first.label, np.ndarray) and float(first.label) == 0.5


def test_a_dataset_of_pictures_is_preprocessed() -> None:
    picture = Image.new("RGB", (6, 4), (255, 0, 51))

    class Pictures:
        classes = ("cat", "dog")

        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: int) -> tuple[Image.Image, int]:
            return picture, place

    wanted = ModelInput((1, 3, 2, 2), FLOAT)
    found = source(Pictures(), [wanted], preprocess="crop=2")
    assert [sample.label for sample in found] == [0, 1] and found.classes == ("cat", "dog")
    assert found[0].arrays[0][0, :, 0, 0].tolist() == [1, 0, np.float32(0.2)]
    with pytest.raises(InvalidOptionError) as caught:
        list(source(Pictures(), [wanted], option="calibration"))
    assert str(caught.value) == (
        "calibration: 'item 0': it has a picture of Pillow; give its preprocessing, or an array."
    )


def test_a_loader_is_read_item_by_item() -> None:
    asked: list[int] = []

    def items() -> Iterator[torch.Tensor]:
        for number, row in enumerate(VALUES):
            asked.append(number)
            yield row

    found = source(items(), [PAIR], limit=3)
    assert found.limited(2).places == range(2) and found.limited(9).places == range(3)
    assert asked == []
    next(iter(found))
    assert asked == [0]
    with pytest.raises(InvalidOptionError) as caught:
        list(found)
    assert str(caught.value) == "--calibration: the generator can be read only once. Pass a list, or a DataLoader."


LOADER = """\
import torch
import numpy

VALUES = torch.arange(14.0).reshape(7, 2)

def loader():
    for row in VALUES:
        yield row, int(row[0])

dataset = torch.utils.data.TensorDataset(VALUES)
batches = [VALUES]

def broken():
    yield VALUES
    raise KeyError("seven")

class Broken:
    def __len__(self):
        return 2

    def __getitem__(self, place):
        raise OSError("no disk")

missing = Broken()

def number():
    return 3

def nothing():
    return []

def doubled(picture):
    return torch.tensor(numpy.asarray(picture)).permute(2, 0, 1) * 2.0

class Processor:
    def __call__(self, picture):
        return {"pixel_values": [doubled(picture).numpy()], "labels": None}

processor = Processor()

def squeezed(picture):
    return doubled(picture)[0]

def raising(picture):
    raise ValueError("no such filter")

def loudness(values):
    return numpy.array([values.min(), values.max()])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(LOADER)
    return tmp_path / "data.py"


def test_loaders_of_python_files(file: Path) -> None:
    assert taken(f"{file}:loader") == [(arrays, 2 * place) for place, (arrays, _) in enumerate(WITHOUT_LABELS)]
    assert taken(f"{file}:dataset") == taken(f"{file}:batches") == WITHOUT_LABELS
    found = source(f"{file}:loader", [PAIR])
    assert (len(found), len(list(found)), [sample.name for sample in found[5:]]) == (7, 7, ["item 5", "item 6"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "'data.py:broken', line 15: KeyError: 'seven'"),
        ("missing", "'data.py:missing', line 22: OSError: no disk"),
        ("number", "'data.py:number' returned int; it must yield samples."),
        ("nothing", "--calibration: 'data.py:nothing' yields no samples."),
        ("loder", "'data.py' has no function 'loder'. Did you mean 'loader' or 'loudness'?"),
        ("a b", "--calibration: '{file}:a b': 'a b' is no function's name. Write file.py:function."),
    ],
)
def test_wrong_loaders(name: str, words: str, file: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        taken(f"{file}:{name}")
    assert str(caught.value) == words.format(file=file)


def test_what_is_known_before_the_code_runs(file: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        check(f"{file}:loder")
    assert str(caught.value) == "'data.py' has no function 'loder'. Did you mean 'loader' or 'loudness'?"
    with pytest.raises(InvalidOptionError) as caught:
        check(f"{file.with_name('date.py')}:loader")
    assert str(caught.value) == f"--calibration: '{file.with_name('date.py')}' does not exist. Did you mean 'data.py'?"
    with pytest.raises(InvalidOptionError) as caught:
        check(f"{file}:loader", f"{file}:double")
    assert str(caught.value) == "'data.py' has no function 'double'. Did you mean 'doubled'?"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ((VALUES, VALUES, VALUES), "it has 3 parts; the model takes 1 input, and a label behind it is optional"),
        (
            torch.zeros(4, 3),
            "it is float32[4,3]; the model takes float32[1,2], one sample or several along the first axis",
        ),
        ((VALUES, LABELS[:2]), "it has 7 samples and labels of shape [2]; they must be as many"),
        (
            torch.zeros(1, 2, dtype=torch.bfloat16),
            "it is Tensor, which is no array: Got unsupported ScalarType BFloat16",
        ),
        ("text", "it is str; an array or a tensor is needed"),
        ({"a": VALUES, "b": VALUES}, "it is a dict of a, b; an array or a tensor is needed"),
    ],
)
def test_items_that_do_not_fit(item: Any, reason: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        taken([VALUES, item])
    assert str(caught.value) == f"--calibration: 'item 1': {reason}."


def test_an_item_of_a_dataset_is_one_sample() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        taken(TensorDataset(VALUES.reshape(1, 7, 2)))
    assert str(caught.value) == "--calibration: 'item 0': it has 7 samples; an item of a dataset is one sample."


def test_an_object_that_is_no_source() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        taken(3, option="calibration")
    assert str(caught.value) == (
        "calibration: it is of type int; it is a folder of pictures, WAV files or .npy files, a .npy or .npz file, COCO's annotations, a data.yaml, or file.py:loader, a "
        "Dataset or DataLoader, or an iterable."
    )


@pytest.mark.parametrize("name", ["doubled", "processor"])
def test_a_preprocessing_function_gets_the_picture_of_a_file(name: str, file: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    Image.new("L", (2, 2), 3).save(tmp_path / "pictures" / "a.png")
    found = source(tmp_path / "pictures", [ModelInput((1, 3, 2, 2), FLOAT)], preprocess=f"{file}:{name}")
    assert found.preprocessing == f"data.py:{name}"
    assert found[0].arrays[0].tolist() == [[[[6.0, 6.0], [6.0, 6.0]]] * 3]


def test_a_preprocessing_function_in_python() -> None:
    found = source(
        [Image.new("L", (2, 2), 3)], [ModelInput((1, 2, 2), FLOAT)], preprocess=lambda p: np.float32(p), option="data"
    )
    assert [sample.arrays[0].tolist() for sample in found] == [[[[3.0, 3.0], [3.0, 3.0]]]]


def test_wrong_preprocessing_functions(file: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    picture = tmp_path / "pictures" / "a.png"
    Image.new("L", (2, 2), 3).save(picture)
    for name, words in {
        "squeezed": f"--calibration: '{picture}': it is float32[2,2]; the model takes float32[1,3,2,2], one sample or several along "
        "the first axis.",
        "raising": f"--preprocess: on '{picture}': 'data.py:raising', line 45: ValueError: no such filter",
    }.items():
        with pytest.raises(InvalidOptionError) as caught:
            list(source(tmp_path / "pictures", [ModelInput((1, 3, 2, 2), FLOAT)], preprocess=f"{file}:{name}"))
        assert str(caught.value) == words


def test_a_preprocessing_function_gets_the_values_of_a_sound(file: Path, tmp_path: Path) -> None:
    import wave

    (tmp_path / "sounds").mkdir()
    with wave.open(str(tmp_path / "sounds" / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(np.array([0, 16384, -8192], "<i2").tobytes())
    found = source(tmp_path / "sounds", [PAIR], preprocess=f"{file}:loudness")
    assert found[0].arrays[0].tolist() == [[-0.25, 0.5]]
