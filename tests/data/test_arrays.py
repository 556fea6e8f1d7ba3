# SPDX-License-Identifier: BSD-3-Clause
"""Samples of .npy files, folders of them and .npz files, and the messages about wrong ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron.device.data import ModelInput, Sample, source
from openneutron.errors import InvalidOptionError
from openneutron.ir import QuantParams

IMAGE = ModelInput((1, 3, 4, 4), np.dtype(np.float32))
FLAG = ModelInput((1, 2), np.dtype(np.int64))


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def load(path: Path, *inputs: ModelInput) -> list[Sample]:
    return list(source(path, inputs))


def message(path: Path, *inputs: ModelInput) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        load(path, *inputs)
    return str(caught.value)


@pytest.mark.parametrize("shape", [(5, 3, 4, 4), (5, 1, 3, 4, 4)])
def test_an_archive_with_one_array_of_any_name(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=values(*shape))
    samples = load(tmp_path / "set.npz", IMAGE)
    assert [sample.arrays[0].shape for sample in samples] == [IMAGE.shape] * 5
    assert [sample.name for sample in samples[:2]] == ["set[0]", "set[1]"]
    np.testing.assert_array_equal(np.concatenate([s.arrays[0] for s in samples]), values(5, 3, 4, 4))


def test_an_archive_with_several_inputs_and_labels(tmp_path: Path) -> None:
    arrays = {"input1": values(4, 2, dtype="int32"), "input0": values(4, 3, 4, 4, dtype="float64")}
    np.savez(tmp_path / "set.npz", **arrays, labels=[7, 8, 9, 7])
    samples = load(tmp_path / "set.npz", IMAGE, FLAG)
    assert [sample.label for sample in samples] == [7, 8, 9, 7]
    third = samples[2].arrays
    assert [(part.shape, part.dtype) for part in third] == [(IMAGE.shape, IMAGE.dtype), (FLAG.shape, FLAG.dtype)]
    np.testing.assert_array_equal(third[1], values(4, 2)[2:3])


def test_a_folder_of_samples_and_batches_in_the_order_of_their_names(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", values(3, 3, 4, 4) + 1000)
    np.save(tmp_path / "a.npy", values(1, 3, 4, 4))
    np.save(tmp_path / "c.npy", values(3, 4, 4) + 2000)
    (tmp_path / "notes.txt").write_text("not a sample")
    samples = load(tmp_path, IMAGE)
    assert [sample.arrays[0].shape for sample in samples] == [IMAGE.shape] * 5
    assert [float(sample.arrays[0].flat[0]) for sample in samples] == [0, 1000, 1048, 1096, 2000]
    assert [sample.name for sample in samples] == ["a.npy", "b.npy[0]", "b.npy[1]", "b.npy[2]", "c.npy"]
    assert {sample.label for sample in samples} == {None}


def test_one_file_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "set.npy", values(5, 3, 4, 4))
    found = source(tmp_path / "set.npy", [IMAGE])
    assert len(found) == 5
    np.testing.assert_array_equal(found[3].arrays[0], values(5, 3, 4, 4)[3:4])
    assert [sample.name for sample in found[1:3]] == ["set[1]", "set[2]"]


def test_labels_of_a_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values(2, 3, 4, 4))
    np.save(tmp_path / "labels.npy", [3, 1])
    assert [sample.label for sample in load(tmp_path, IMAGE)] == [3, 1]
    np.save(tmp_path / "labels.npy", [[0.5, 1.5], [2.5, 3.5]])
    np.testing.assert_array_equal(load(tmp_path, IMAGE)[1].label, [2.5, 3.5])
    np.save(tmp_path / "labels.npy", [3, 1, 2])
    assert message(tmp_path, IMAGE) == (
        f"--calibration: '{tmp_path}' has 2 samples and 3 labels; they must be as many."
    )


def test_class_folders_of_arrays(tmp_path: Path) -> None:
    for name, count in (("cat", 2), ("dog", 1)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", values(count, 3, 4, 4))
    found = source(tmp_path, [IMAGE])
    assert found.classes == ("cat", "dog")
    assert [(sample.label, sample.name) for sample in found] == [
        (0, "cat/x.npy[0]"),
        (0, "cat/x.npy[1]"),
        (1, "dog/x.npy"),
    ]


def test_a_folder_with_several_inputs(tmp_path: Path) -> None:
    for name in ("x", "y"):
        np.save(tmp_path / f"{name}_0.npy", values(2, 3, 4, 4))
        np.save(tmp_path / f"{name}_1.npy", values(2, 2, dtype="int64"))
    assert [sample.name for sample in load(tmp_path, IMAGE, FLAG)] == ["x[0]", "x[1]", "y[0]", "y[1]"]


def test_batches_of_a_model_that_takes_several_at_once(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values(6, 2))
    samples = load(tmp_path, ModelInput((3, 2), np.dtype(np.float32)))
    assert [sample.arrays[0].shape for sample in samples] == [(3, 2), (3, 2)]


def test_floats_for_a_quantized_input_are_rounded_as_litert_does(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[0.25, -0.25, 0.1, 100.0]], np.float32))
    quantized = ModelInput((1, 4), np.dtype(np.int8), QuantParams((0.5,), (3,)))
    (sample,) = load(tmp_path, quantized)
    assert sample.arrays[0].dtype == np.int8
    assert sample.arrays[0].tolist() == [[4, 2, 3, 127]]


def test_values_are_read_when_a_sample_is_asked_for(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values(2, 3, 4, 4))
    np.save(tmp_path / "b.npy", values(1, 3, 4, 4))
    found = source(tmp_path, [IMAGE])
    np.save(tmp_path / "b.npy", values(1, 3, 4, 4) + 5)
    assert float(found[2].arrays[0].flat[0]) == 5
    (tmp_path / "b.npy").unlink()
    assert len(list(found[:2])) == 2
    with pytest.raises(InvalidOptionError, match=r"b\.npy': it is no NumPy file that can be read: "):
        found[2]


def test_no_such_set(tmp_path: Path) -> None:
    assert message(tmp_path / "none", IMAGE) == f"--calibration: '{tmp_path / 'none'}' does not exist."
    (tmp_path / "set.txt").write_text("")
    assert message(tmp_path / "set.txt", IMAGE) == (
        f"--calibration: '{tmp_path / 'set.txt'}' is no source of samples: it is a folder of pictures, WAV files or .npy files, a "
        ".npy or .npz file, COCO's annotations, a data.yaml, or file.py:loader."
    )


def test_sets_without_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=values(0, 3, 4, 4))
    assert message(tmp_path / "set.npz", IMAGE) == f"--calibration: '{tmp_path / 'set.npz'}' has no samples in it."
    np.save(tmp_path / "labels.npy", [])
    assert message(tmp_path, IMAGE) == f"--calibration: '{tmp_path}' has no samples in it."


def test_wrong_shapes_types_and_values(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, values(1, 4, 4, 3))
    assert message(tmp_path, IMAGE) == (
        f"--calibration: '{path}': it is float32[1,4,4,3]; the model takes float32[1,3,4,4], one sample or several along the "
        "first axis."
    )
    np.save(path, values(1, 3, 4, 4, dtype="uint8"))
    assert message(tmp_path, IMAGE) == (
        f"--calibration: '{path}': it is uint8; the model takes float32. Store the model's inputs after all preprocessing."
    )
    np.save(path, values(1, 3, 4, 4) * np.nan)
    assert message(tmp_path, IMAGE) == f"--calibration: '{path}': it has values that are infinite or not a number."
    path.write_bytes(b"damaged")
    assert message(tmp_path, IMAGE).startswith(f"--calibration: '{path}': it is no NumPy file that can be read: ")


@pytest.mark.parametrize(("wrong", "reason"), [(np.nan, "it has values that are infinite or not a number")])
def test_of_many_wrong_files_three_are_named(wrong: float, reason: str, tmp_path: Path) -> None:
    for number in range(9):
        np.save(tmp_path / f"{number}.npy", values(1, 3, 4, 4) * (wrong if number % 2 else 1))
    first = "; ".join(f"'{tmp_path / f'{number}.npy'}': {reason}" for number in (1, 3, 5))
    assert message(tmp_path, IMAGE) == (
        f"--calibration: 4 of the 9 files of '{tmp_path}' can't be used: {first}; and 1 more."
    )


def test_sets_that_do_not_fit_the_inputs(tmp_path: Path) -> None:
    archive = tmp_path / "set.npz"
    np.savez(archive, input0=values(4, 3, 4, 4))
    assert message(archive, IMAGE, FLAG) == (
        f"--calibration: '{archive}' has no array 'input1'; it has input0. The model takes input0, input1."
    )
    np.savez(archive, input0=values(4, 3, 4, 4), input1=values(3, 2, dtype="int64"))
    assert message(archive, IMAGE, FLAG) == (
        f"--calibration: '{archive}': its inputs have 4, 3 samples; they must be as many."
    )
    np.save(tmp_path / "set.npy", values(4, 3, 4, 4))
    assert message(tmp_path / "set.npy", IMAGE, FLAG) == (
        f"--calibration: '{tmp_path / 'set.npy'}' has one array; the model takes 2 inputs. Give a .npz file, or a folder of .npy "
        "files."
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "x_0.npy", values(1, 3, 4, 4))
    ending = "Name the files of one sample NAME_0.npy to NAME_1.npy."
    assert message(folder, IMAGE, FLAG) == (
        f"--calibration: '{folder / 'x_1.npy'}': it is absent; its siblings are there. {ending}"
    )
    np.save(folder / "alone.npy", values(1, 3, 4, 4))
    assert message(folder, IMAGE, FLAG) == (
        f"--calibration: '{folder / 'alone.npy'}': the model takes 2 inputs. {ending}"
    )
