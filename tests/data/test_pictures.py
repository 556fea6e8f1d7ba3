# SPDX-License-Identifier: BSD-3-Clause
"""Folders of pictures: the arithmetic of the preprocessing, layouts, labels, and the messages about wrong files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openneutron.device.data import ModelInput, Source, check, source
from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.ir import QuantParams

FLOAT = np.dtype(np.float32)
IMAGE = ModelInput((1, 3, 8, 8), FLOAT)
STEPS = "resize=10,crop=8,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> Image.Image:
    """Return a picture of random bytes."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(values if channels > 1 else values[..., 0])


def load(folder: Path, wanted: ModelInput = IMAGE, preprocess: str | None = STEPS) -> Source:
    return source(folder, [wanted], preprocess=preprocess)


def message(folder: Path, wanted: ModelInput = IMAGE, preprocess: str | None = STEPS) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        list(load(folder, wanted, preprocess))
    return str(caught.value)


@pytest.mark.parametrize(
    ("size", "resized", "box"),
    [
        ((20, 31), (10, 15), (4, 1, 12, 9)),  # (15 - 8) / 2 = 3.5, and halves are rounded to even numbers
        ((33, 12), (27, 10), (1, 10, 9, 18)),  # (27 - 8) / 2 = 9.5
        ((10, 10), (10, 10), (1, 1, 9, 9)),
    ],
)
def test_resize_crop_and_normalization_are_torchvisions(
    size: tuple[int, int], resized: tuple[int, int], box: tuple[int, int, int, int], tmp_path: Path
) -> None:
    """Resize(10), CenterCrop(8), ToTensor and Normalize, written with Pillow and NumPy alone."""
    noise(*size).save(tmp_path / "a.png")
    (sample,) = load(tmp_path)
    picture = Image.open(tmp_path / "a.png").resize(resized[::-1], Image.Resampling.BILINEAR).crop(box)
    values = np.asarray(picture).astype(np.float32) / np.float32(255)
    values = (values - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    assert sample.arrays[0].dtype == np.float32
    np.testing.assert_array_equal(sample.arrays[0], values.transpose(2, 0, 1)[np.newaxis])


def test_a_letterbox_is_the_picture_in_a_gray_frame(tmp_path: Path) -> None:
    noise(16, 10).save(tmp_path / "a.png")
    (sample,) = load(tmp_path, preprocess="letterbox=8")
    picture = Image.open(tmp_path / "a.png").resize((5, 8), Image.Resampling.BILINEAR)
    values = np.full((8, 8, 3), 114, np.float32)
    values[:, 1:6] = np.asarray(picture)
    np.testing.assert_array_equal(sample.arrays[0], (values / np.float32(255)).transpose(2, 0, 1)[np.newaxis])


@pytest.mark.parametrize("name", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_every_interpolation_is_pillows(name: str, tmp_path: Path) -> None:
    noise(9, 17).save(tmp_path / "a.png")
    (sample,) = load(tmp_path, preprocess=f"resize=8x8,interpolation={name},scale=1")
    expected = Image.open(tmp_path / "a.png").resize((8, 8), Image.Resampling[name.upper()])
    np.testing.assert_array_equal(sample.arrays[0][0], np.asarray(expected).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("shape", "channels_last", "taken"),
    [
        ((1, 3, 8, 8), None, lambda rgb: rgb.transpose(2, 0, 1)),
        ((1, 8, 8, 3), None, lambda rgb: rgb),
        ((1, 3, 8, 3), True, lambda rgb: rgb[:3, :, :][:, :8]),
        ((1, 8, 8), None, lambda rgb: np.asarray(Image.fromarray(rgb).convert("L"))),
        ((1, 1, 8, 8), None, lambda rgb: np.asarray(Image.fromarray(rgb).convert("L"))),
    ],
)
def test_layouts_and_channels_are_the_models(shape, channels_last, taken, tmp_path: Path) -> None:
    size = (3, 8) if channels_last else (8, 8)
    picture = noise(*size)
    picture.save(tmp_path / "a.png")
    (sample,) = load(tmp_path, ModelInput(shape, FLOAT, channels_last=channels_last), "scale=1")
    np.testing.assert_array_equal(sample.arrays[0], taken(np.asarray(picture)).reshape(shape))


def test_colors(tmp_path: Path) -> None:
    picture = noise(8, 8)
    picture.save(tmp_path / "a.png")
    (sample,) = load(tmp_path, preprocess="color=bgr,scale=1")
    np.testing.assert_array_equal(sample.arrays[0][0], np.asarray(picture)[..., ::-1].transpose(2, 0, 1))
    (sample,) = load(tmp_path, preprocess="color=gray,scale=1")
    np.testing.assert_array_equal(sample.arrays[0][0], np.stack([np.asarray(picture.convert("L"))] * 3))
    assert message(tmp_path, ModelInput((1, 1, 8, 8), FLOAT), "color=bgr") == (
        "--preprocess: color=bgr is for 3 channels; the model has 1. Leave it out."
    )
    assert message(tmp_path, preprocess="mean=0.5:0.5") == (
        "--preprocess: mean has 2 numbers; the model has 3 channels. Give one number, or one for each."
    )


def test_integer_inputs(tmp_path: Path) -> None:
    """Bytes for an input of plain bytes, and quantized values for an input with a scale."""
    picture = noise(8, 8)
    picture.save(tmp_path / "a.bmp")
    pixels = np.asarray(picture)[np.newaxis]
    (sample,) = load(tmp_path, ModelInput((1, 8, 8, 3), np.dtype(np.uint8)), None)
    np.testing.assert_array_equal(sample.arrays[0], pixels)
    quantized = ModelInput((1, 8, 8, 3), np.dtype(np.int8), QuantParams((1 / 255,), (-128,)))
    (sample,) = load(tmp_path, quantized, None)
    np.testing.assert_array_equal(sample.arrays[0], (pixels.astype(np.int16) - 128).astype(np.int8))
    assert message(tmp_path, ModelInput((1, 8, 8, 3), np.dtype(np.int8)), None) == (
        f"--calibration: '{tmp_path / 'a.bmp'}': its values are no int8 after the preprocessing."
    )


def classes(folder: Path, *names: str) -> None:
    """Write two pictures for each class."""
    for name in names:
        (folder / name).mkdir()
        for number in range(2):
            noise(8, 8, seed=number).save(folder / name / f"{number}.jpg")


@pytest.mark.parametrize(
    ("names", "stated", "found", "labels"),
    [
        (("dog", "cat"), None, ("cat", "dog"), [0, 0, 1, 1]),
        (("10", "9"), None, ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"), [9, 9, 10, 10]),
        (("20260131", "20250131"), None, ("20250131", "20260131"), [0, 0, 1, 1]),
        (("cat", "dog"), "dog\nbird\ncat\n", ("dog", "bird", "cat"), [0, 0, 2, 2]),
    ],
)
def test_labels_of_class_folders(names, stated, found, labels, tmp_path: Path) -> None:
    classes(tmp_path, *names)
    (tmp_path / ".cache").mkdir()
    if stated is not None:
        (tmp_path / "classes.txt").write_text(stated)
    data = load(tmp_path)
    assert (data.classes, [sample.label for sample in data]) == (found, labels)
    assert data[0].name == f"{found[labels[0]]}/0.jpg"


def test_a_limit_takes_samples_of_every_class(tmp_path: Path) -> None:
    classes(tmp_path, "a", "b", "c")
    found = source(tmp_path, [IMAGE], preprocess=STEPS, limit=3)
    assert [sample.name for sample in found] == ["a/0.jpg", "b/0.jpg", "c/0.jpg"]
    assert [sample.name for sample in found[1:]] == ["b/0.jpg", "c/0.jpg"]
    assert (len(found), found[2].name, len(source(tmp_path, [IMAGE], preprocess=STEPS, limit=99))) == (3, "c/0.jpg", 6)


def test_pictures_are_decoded_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes(tmp_path, "a", "b")
    decoded: list[str] = []
    convert = Image.Image.convert
    monkeypatch.setattr(
        Image.Image, "convert", lambda picture, *mode: decoded.append(mode[0]) or convert(picture, *mode)
    )
    found = load(tmp_path)
    assert decoded == []
    next(iter(found))
    assert decoded == ["RGB"]


def test_the_preprocessing_is_stated_in_the_order_of_its_steps(tmp_path: Path) -> None:
    classes(tmp_path, "a")
    text = "std=2, crop=8,resize=9,scale=2/255,mean=0.485,interpolation=bicubic,color=gray"
    assert load(tmp_path, preprocess=text).preprocessing == (
        "color=gray,resize=9,interpolation=bicubic,crop=8,scale=2/255,mean=0.485,std=2"
    )


def test_sizes_that_do_not_fit_are_named_before_any_pixel_is_decoded(tmp_path: Path) -> None:
    for number in range(6):
        noise(8, 8 if number < 1 else 9 + number).save(tmp_path / f"{number}.png")
    listed = "; ".join(
        f"'{tmp_path / f'{n}.png'}': it has 8x{9 + n} pixels; the model takes 8x8 pixels" for n in (1, 2, 3)
    )
    with pytest.raises(InvalidOptionError) as caught:
        load(tmp_path, preprocess=None)
    assert str(caught.value) == (
        f"--calibration: 5 of the 6 files of '{tmp_path}' can't be used: {listed}; and 2 more. Give a size, for instance "
        "--preprocess resize=8,crop=8."
    )
    assert message(tmp_path, preprocess="resize=7,crop=8").startswith(
        f"--calibration: 6 of the 6 files of '{tmp_path}' can't be used: '{tmp_path / '0.png'}': it has 7x7 pixels after the "
        "resize, less than the crop of 8x8 pixels; "
    )


def test_unreadable_and_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    noise(8, 8).save(tmp_path / "whole.png")
    assert message(tmp_path) == f"--calibration: '{tmp_path / 'text.png'}': it is no picture that Pillow can read."
    (tmp_path / "text.png").unlink()
    data = (tmp_path / "whole.png").read_bytes()
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes(data[: len(data) // 2])
    found = load(tmp_path)
    with pytest.raises(InvalidOptionError) as caught:
        list(found)
    start = (
        f"--calibration: 5 of the 6 files of '{tmp_path}' can't be used: '{tmp_path / '0.png'}': it can't be decoded: "
    )
    assert str(caught.value).startswith(start) and str(caught.value).endswith("; and 2 more.")
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "0.png")
    with pytest.raises(InvalidOptionError) as caught:
        load(tmp_path)
    assert str(caught.value) == (
        f"--calibration: '{tmp_path / '0.png'}': its values have more than 8 bits (Pillow's mode I;16)."
    )


def test_folders_without_files_and_with_several_kinds(tmp_path: Path) -> None:
    suffixes = ".png, .jpg, .jpeg, .bmp, .wav, .npy"
    assert message(tmp_path) == (
        f"--calibration: there are no samples in '{tmp_path}': no {suffixes} files, nor class folders of them."
    )
    classes(tmp_path, "a")
    for name in ("b", "c", "d", "e"):
        (tmp_path / name).mkdir()
    assert message(tmp_path) == (
        f"--calibration: class folders of '{tmp_path}' have no {suffixes} files: 'b', 'c', 'd' and 1 more. Remove them, or add files."
    )
    for name in ("b", "c", "d", "e"):
        (tmp_path / name).rmdir()
    (tmp_path / "classes.txt").write_text("b\n")
    assert message(tmp_path) == (
        f"--calibration: '{tmp_path / 'classes.txt'}' has no line for the class folders 'a'. It has the name of a class in each "
        "line, in the order of the model's results."
    )
    noise(8, 8).save(tmp_path / "x.png")
    assert message(tmp_path) == (
        f"--calibration: '{tmp_path}' has files, such as 'x.png', beside folders of files, such as 'a'. Keep the files, or a folder "
        "for each class."
    )
    (tmp_path / "x.png").unlink()
    np.save(tmp_path / "a" / "x.npy", np.zeros(1))
    assert (
        message(tmp_path)
        == f"--calibration: '{tmp_path}' has pictures ('a/0.jpg') and arrays ('a/x.npy'). Keep files of one kind."
    )


def test_inputs_that_are_no_pictures(tmp_path: Path) -> None:
    classes(tmp_path, "a")
    assert message(tmp_path, ModelInput((1, 8), FLOAT)) == (
        "--calibration: pictures are for a model that takes one picture; this one takes float32[1,8]. Give its inputs as .npy files."
    )
    assert message(tmp_path, ModelInput((1, 5, 8, 8), FLOAT)) == (
        "--calibration: pictures have 1, 3 or 4 channels; the model takes float32[1,5,8,8]. Give its inputs as .npy files."
    )
    with pytest.raises(InvalidOptionError) as caught:
        source(tmp_path, [IMAGE, IMAGE])
    assert str(caught.value) == (
        "--calibration: pictures are for a model of one input; this one takes 2. Give a loader: file.py:loader."
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resice=8", "'resice' is no step; there are color, resize, interpolation, crop, letterbox, sample_rate, length, scale, mean, std. "
         "Did you mean 'resize'?"),
        ("resize=8x", "'resize=8x' can't be read: resize is a number of pixels for the shorter side, or HEIGHTxWIDTH."),
        ("crop=0", "'crop=0' can't be read: crop is a number of pixels for both sides, or HEIGHTxWIDTH."),
        ("std=0", "'std=0' can't be read: std is a number above 0, or one for each channel with colons between them, such as "
         "0.229:0.224:0.225."),
        ("scale=1/0", "'scale=1/0' can't be read: scale is a number above 0, or a quotient such as 1/255."),
        ("crop=8,crop=9", "'crop' is given twice. Leave one out."),
        ("interpolation=bicubic", "interpolation is for resize, which is not given. Write resize=256,crop=224,"
         "mean=0.485:0.456:0.406,std=0.229:0.224:0.225."),
        ("letterbox=8,crop=8", "letterbox takes the place of resize and crop. Leave crop out."),
        ("length=5", "length is not for pictures. Leave it out."),
    ],
)  # fmt: skip
def test_wrong_steps(text: str, words: str, tmp_path: Path) -> None:
    classes(tmp_path, "a")
    assert message(tmp_path, preprocess=text) == f"--preprocess: {words}"
    with pytest.raises(InvalidOptionError) as caught:
        check(str(tmp_path), text)
    assert str(caught.value) == f"--preprocess: {words}"


def test_options_that_are_for_other_files(tmp_path: Path) -> None:
    classes(tmp_path, "a")
    with pytest.raises(InvalidOptionError) as caught:
        source(tmp_path, [IMAGE], preprocess=STEPS, sample_rate=8000)
    assert str(caught.value) == "--sample-rate: it is for WAV files, not for pictures. Leave it out."
    with pytest.raises(InvalidOptionError) as caught:
        source(tmp_path, [IMAGE], limit=0, option="calibration")
    assert str(caught.value) == "calibration_samples: it is 0; it is at least 1."
    np.savez(tmp_path / "set.npz", np.zeros((1, 3, 8, 8)))
    with pytest.raises(InvalidOptionError) as caught:
        source(tmp_path / "set.npz", [IMAGE], preprocess=STEPS)
    assert str(caught.value) == (
        f"--preprocess: it is for pictures and WAV files; '{tmp_path / 'set.npz'}' must have the model's inputs already. Leave it out."
    )


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes(tmp_path, "a")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingToolError) as caught:
        check(str(tmp_path), STEPS)
    assert str(caught.value) == ("Reading pictures takes Pillow, which is not installed: pip install pillow.")
