# SPDX-License-Identifier: BSD-3-Clause
"""Labelled boxes of pictures: COCO's annotations, and Ultralytics' data.yaml with a text file for each picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data.preprocessing import opened
from openneutron.device.data.samples import Boxes, UnusableError
from openneutron.errors import InvalidOptionError, MissingToolError

KEYS = ("images", "annotations", "categories")
"""The fields of COCO's annotations (https://cocodataset.org/#format-data)."""

SPLITS = ("val", "test", "train")
"""The fields of data.yaml with pictures, in the order in which they are looked for."""


Labelled = tuple[tuple[str, ...], list[tuple[Path, Boxes]]]
"""The names of classes, and the pictures with their objects."""


def labelled(path: Path, option: str) -> Labelled | None:
    """Return the class names, and the pictures with their labelled objects. ``path`` is a folder with COCO's
    annotations, a file of such annotations, or a data.yaml. Return None for anything else.

    The annotations of a folder are a ``.json`` in it or in its folder ``annotations``. If there are several, the only
    one whose name begins with ``instances`` is read. Raises InvalidOptionError where it is unclear which one to read,
    and for annotations that can't be used. Raises MissingToolError for a data.yaml where PyYAML is not installed.
    """
    if path.suffix in (".yaml", ".yml"):
        return _of_yaml(path, option)
    if path.suffix == ".json":
        return _of_coco(path, path.parent, option)
    files = [
        file for folder in (path, path / "annotations") if folder.is_dir() for file in sorted(folder.glob("*.json"))
    ]
    if not files:
        return None
    named = [file for file in files if file.name.startswith("instances")] or files
    if len(named) > 1:
        shown = ", ".join(f"'{file.relative_to(path)}'" for file in named[:3])
        raise InvalidOptionError(
            f"{option}: '{path}' has {len(named)} files of annotations, such as {shown}. Give one of them in the folder's place."
        )
    return _of_coco(named[0], path, option)


def _of_coco(file: Path, folder: Path, option: str) -> Labelled:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidOptionError(f"{option}: '{file}' can't be read as JSON: {error}.") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in KEYS):
        raise InvalidOptionError(f"{option}: '{file}' has no COCO annotations: the lists {', '.join(KEYS)}.")
    folder = folder.parent if folder.name == "annotations" else folder
    there = {path.name: path for path in sorted(folder.rglob("*")) if path.is_file()}
    try:
        categories = sorted(content["categories"], key=lambda item: item["id"])
        places = {item["id"]: place for place, item in enumerate(categories)}
        objects: dict[Any, list[Mapping[str, Any]]] = {item["id"]: [] for item in content["images"]}
        for item in content["annotations"]:
            objects[item["image_id"]].append(item)
        found = []
        for image in content["images"]:
            name = str(image["file_name"])
            path = next(
                (path for path in (folder / name, file.parent / name) if path.is_file()), there.get(Path(name).name)
            )
            if path is None:
                raise InvalidOptionError(
                    f"{option}: there is no picture '{name}' in '{folder}', which '{file.name}' names."
                )
            its = objects[image["id"]]
            boxes = np.array([item["bbox"] for item in its], np.float32).reshape(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            classes = [places[item["category_id"]] for item in its]
            crowds = [bool(item.get("iscrowd")) for item in its]
            found.append((path, _boxes(int(image["height"]), int(image["width"]), classes, boxes, crowds)))
        return tuple(str(item["name"]) for item in categories), found
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidOptionError(
            f"{option}: '{file}' has annotations of another form than COCO's: {type(error).__name__} {error}."
        ) from error


def _boxes(height: int, width: int, classes: Sequence[int], corners: np.ndarray, crowds: Sequence[bool]) -> Boxes:
    return Boxes(height, width, np.array(classes, np.int64), corners, np.array(crowds, bool))


def _of_yaml(file: Path, option: str) -> Labelled:
    try:
        import yaml
    except ImportError as error:
        raise MissingToolError(
            "Reading a data.yaml takes PyYAML, which is not installed: pip install 'openneutron[coco]'."
        ) from error
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidOptionError(f"{option}: '{file}' can't be read as YAML: {str(error).splitlines()[0]}.") from error
    split = next((name for name in SPLITS if isinstance(content, dict) and content.get(name)), None)
    if split is None or not content.get("names"):
        raise InvalidOptionError(f"{option}: '{file}' is no data set of Ultralytics: 'names' or 'val' is missing.")
    names = content["names"]
    classes = tuple(str(names[key]) for key in sorted(names)) if isinstance(names, dict) else tuple(map(str, names))
    root = Path(content.get("path") or ".")
    root = root if root.is_absolute() else file.parent / root
    given = content[split] if isinstance(content[split], list) else [content[split]]
    pictures = [picture for part in given for picture in _pictures(root / part)]
    if not pictures:
        raise InvalidOptionError(f"{option}: there are no pictures in '{root / given[0]}', which '{file.name}' names.")
    try:
        return classes, [(picture, _of_text(picture, len(classes))) for picture in pictures]
    except (UnusableError, ValueError) as error:
        raise InvalidOptionError(f"{option}: {error}.") from error


def _pictures(place: Path) -> Iterator[Path]:
    """Yield the pictures in a folder, or those that the lines of a text file name."""
    if place.suffix == ".txt" and place.is_file():
        for line in filter(None, map(str.strip, place.read_text().splitlines())):
            yield Path(line) if Path(line).is_absolute() else place.parent / line
    elif place.is_dir():
        yield from (
            path for path in sorted(place.rglob("*")) if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".bmp")
        )


def _of_text(picture: Path, classes: int) -> Boxes:
    """Return the objects of a picture from its text file. Each line has the number of a class, and then a centre and
    a size, or the points of an outline, as shares of the picture's width and height.

    The path of the text file has the folder ``labels`` in the place of the last ``images``. Without the file the
    picture has no objects. Raises UnusableError for a line of another form.
    """
    parts = list(picture.parts)
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    text = Path(*parts).with_suffix(".txt")
    with opened(picture) as file:
        width, height = file.size
    rows = [line.split() for line in text.read_text().splitlines() if line.strip()] if text.is_file() else []
    numbers, corners = [], np.zeros((len(rows), 4), np.float32)
    for place, (number, *values) in enumerate(rows):
        shares = np.array(values, np.float32)
        if not 0 <= int(number) < classes or len(shares) < 4 or len(shares) % 2:
            raise UnusableError(f"'{text}' has a line that is no box: {' '.join(rows[place])[:60]}")
        if len(shares) == 4:
            x, y, across, along = shares
            corners[place] = (x - across / 2, y - along / 2, x + across / 2, y + along / 2)
        else:
            points = shares.reshape(-1, 2)
            corners[place] = (*points.min(0), *points.max(0))
        numbers.append(int(number))
    return _boxes(height, width, numbers, corners * np.array([width, height] * 2, np.float32), [False] * len(rows))
