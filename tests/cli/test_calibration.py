# SPDX-License-Identifier: BSD-3-Clause
"""Calibration sets: folders of .npy files and .npz files, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron.cli.calibration import Wanted, load
from openneutron.errors import InvalidOptionError

IMAGE = Wanted((1, 3, 4, 4), np.dtype(np.float32))
FLAG = Wanted((1, 2), np.dtype(np.int64))


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape", [(5, 3, 4, 4), (5, 1, 3, 4, 4)])
def test_an_archive_with_one_array_of_any_name(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=values(*shape))
    samples = load(tmp_path / "set.npz", [IMAGE])
    assert [sample[0].shape for sample in samples] == [IMAGE.shape] * 5
    np.testing.assert_array_equal(np.concatenate([s[0] for s in samples]), values(5, 3, 4, 4))


def test_an_archive_with_several_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", input1=values(4, 2, dtype="int32"), input0=values(4, 3, 4, 4, dtype="float64"))
    samples = load(tmp_path / "set.npz", [IMAGE, FLAG])
    assert len(samples) == 4
    assert [(part.shape, part.dtype) for part in samples[2]] == [(IMAGE.shape, IMAGE.dtype), (FLAG.shape, FLAG.dtype)]
    np.testing.assert_array_equal(samples[2][1], values(4, 2)[2:3])


def test_a_folder_of_samples_and_batches_in_the_order_of_their_names(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", values(3, 3, 4, 4) + 1000)
    np.save(tmp_path / "a.npy", values(1, 3, 4, 4))
    np.save(tmp_path / "c.npy", values(3, 4, 4) + 2000)
    (tmp_path / "notes.txt").write_text("not a sample")
    samples = load(tmp_path, [IMAGE])
    assert [sample[0].shape for sample in samples] == [IMAGE.shape] * 5
    assert [float(sample[0].flat[0]) for sample in samples] == [0, 1000, 1048, 1096, 2000]


def test_a_folder_with_several_inputs(tmp_path: Path) -> None:
    for name in ("x", "y"):
        np.save(tmp_path / f"{name}_0.npy", values(2, 3, 4, 4))
        np.save(tmp_path / f"{name}_1.npy", values(2, 2, dtype="int64"))
    assert len(load(tmp_path, [IMAGE, FLAG])) == 4


def test_batches_of_a_model_that_takes_several_at_once(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values(6, 2))
    samples = load(tmp_path, [Wanted((3, 2), np.dtype(np.float32))])
    assert [sample[0].shape for sample in samples] == [(3, 2), (3, 2)]


def message(path: Path, *inputs: Wanted) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        load(path, inputs)
    return str(caught.value)


def test_no_such_set(tmp_path: Path) -> None:
    assert message(tmp_path / "none", IMAGE) == f"--calibration: '{tmp_path / 'none'}' does not exist."
    (tmp_path / "set.txt").write_text("")
    assert message(tmp_path / "set.txt", IMAGE) == (
        f"--calibration: '{tmp_path / 'set.txt'}' is neither a folder of .npy files nor a .npz file."
    )


def test_empty_sets(tmp_path: Path) -> None:
    assert message(tmp_path, IMAGE) == f"--calibration: there are no .npy files in '{tmp_path}'."
    np.savez(tmp_path / "set.npz", images=values(0, 3, 4, 4))
    assert message(tmp_path / "set.npz", IMAGE) == (
        f"--calibration: '{tmp_path / 'set.npz'}' has no samples in it; int8 scales come from at least one."
    )


def test_wrong_shapes_types_and_values(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, values(1, 4, 4, 3))
    assert message(tmp_path, IMAGE) == (
        f"--calibration: {path}: it is float32[1,4,4,3]; the model takes float32[1,3,4,4], one sample or several along the "
        "first axis."
    )
    np.save(path, values(1, 3, 4, 4, dtype="uint8"))
    assert message(tmp_path, IMAGE) == (
        f"--calibration: {path}: it is uint8; the model takes float32. Store the model's inputs after all preprocessing."
    )
    np.save(path, values(1, 3, 4, 4) * np.nan)
    assert message(tmp_path, IMAGE) == f"--calibration: {path}: it has values that are infinite or not a number."
    path.write_bytes(b"damaged")
    assert message(tmp_path, IMAGE).startswith(f"'{path}' is no NumPy file that can be read: ")


def test_sets_that_do_not_fit_the_inputs(tmp_path: Path) -> None:
    archive = tmp_path / "set.npz"
    np.savez(archive, input0=values(4, 3, 4, 4))
    assert message(archive, IMAGE, FLAG) == (
        f"--calibration: '{archive}' has no array 'input1'; it has input0. The model takes input0, input1."
    )
    np.savez(archive, input0=values(4, 3, 4, 4), input1=values(3, 2, dtype="int64"))
    assert message(archive, IMAGE, FLAG) == (
        f"--calibration: {archive}: its inputs have 4, 3 samples; they must be as many."
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "x_0.npy", values(1, 3, 4, 4))
    assert message(folder, IMAGE, FLAG) == f"--calibration: '{folder / 'x_1.npy'}' is absent; its siblings are there."
    np.save(folder / "alone.npy", values(1, 3, 4, 4))
    assert message(folder, IMAGE, FLAG) == (
        f"--calibration: '{folder / 'alone.npy'}': the model takes 2 inputs; name the files of one sample NAME_0.npy to "
        "NAME_1.npy."
    )
