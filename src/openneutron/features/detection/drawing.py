# SPDX-License-Identifier: BSD-3-Clause
"""Draw detections into a picture with Pillow."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from openneutron.features.detection.detections import Detections, masks

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

OPACITY = 0.45
"""The share of its colour that a mask has in the picture."""

VISIBLE = 0.5
"""The least visibility of a keypoint that is drawn, as in Ultralytics' plots (utils/plotting.py, 8.4)."""

GOLDEN = 0.618034
"""The step of the hue from class to class, the golden ratio's fraction: any few neighbours have hues far apart."""


def colour(number: int) -> tuple[int, int, int]:
    """Return the colour of a class."""
    red, green, blue = colorsys.hsv_to_rgb(number * GOLDEN % 1, 0.9, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def drawn(picture: Image.Image, found: Detections, names: Mapping[int, str]) -> Image.Image:
    """Return a copy of a picture with boxes, names and scores, and with masks and keypoints where there are any.

    ``found`` has pixels of the picture (``Detections.in_picture``). The detection of the highest score is drawn last.
    """
    from PIL import Image, ImageDraw, ImageFont

    made = picture.convert("RGB")
    if found.coefficients is not None and len(found):
        pixels = np.asarray(made).astype(np.float32)
        for mask, number in zip(masks(found, made.height, made.width), found.classes, strict=True):
            pixels[mask] = (1 - OPACITY) * pixels[mask] + OPACITY * np.array(colour(int(number)), np.float32)
        made = Image.fromarray(pixels.round().astype(np.uint8))
    draw = ImageDraw.Draw(made)
    width = max(1, round(min(made.size) / 200))
    font = ImageFont.load_default(max(10, round(min(made.size) / 32)))
    for place in reversed(range(len(found))):
        number = int(found.classes[place])
        shade = colour(number)
        corners = [(float(x), float(y)) for x, y in found.corners()[place]]
        draw.line([*corners, corners[0]], shade, width, joint="curve")
        if found.keypoints is not None:
            for x, y, *seen in found.keypoints[place].tolist():
                if not seen or seen[0] > VISIBLE:
                    draw.ellipse([x - width, y - width, x + width, y + width], shade)
        text = f"{names.get(number, number)} {found.scores[place]:.2f}"
        _label(draw, min(corners, key=lambda corner: corner[::-1]), text, shade, font, made.size)
    return made


def _label(
    draw: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    text: str,
    shade: tuple[int, int, int],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    size: tuple[int, int],
) -> None:
    """Draw a text on a ground of a colour above a corner, inside a picture of this size."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    width, height = right - left + 4, bottom - top + 4
    x = min(max(0, corner[0]), max(0, size[0] - width))
    y = corner[1] - height if corner[1] >= height else min(corner[1], max(0, size[1] - height))
    draw.rectangle([x, y, x + width, y + height], fill=shade)
    dark = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] > 128
    draw.text((x + 2 - left, y + 2 - top), text, fill=(0, 0, 0) if dark else (255, 255, 255), font=font)
