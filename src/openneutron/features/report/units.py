# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, counts and durations as text."""

from __future__ import annotations

from math import floor, log10


def size_text(size: int) -> str:
    """Return a size in bytes, KiB or MiB."""
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:,.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):,.2f} MiB"


def count_text(count: int) -> str:
    """Return a count in units of a thousand (k), a million (M) or a billion (G)."""
    for letter, unit in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= unit:
            return f"{count / unit:,.1f} {letter}"
    return str(count)


def number_text(value: float) -> str:
    """Return a number with three digits and without an exponent, or as a whole number from 100 on."""
    if value >= 99.95 or value <= 0:
        return f"{value:,.0f}"
    return f"{value:.{2 - floor(log10(value))}f}"


def plural(count: int, what: str) -> str:
    """Return a count with its noun, for instance ``1 partition`` and ``2 partitions``."""
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def range_text(milliseconds: float, least: float, most: float) -> str:
    """Return a duration with its range in the same unit, such as ``21.80 ms (19 to 27)``. The bounds have two digits, or
    are whole numbers."""
    scale = 1.0 if milliseconds >= 0.9995 else 1e3
    low, high = (_two_digits(scale * bound) for bound in (least, most))
    return f"{duration_text(milliseconds)} ({low} to {high})" if milliseconds else duration_text(milliseconds)


def _two_digits(value: float) -> str:
    """Return a number with two digits, or as a whole number from 10 on."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def duration_text(milliseconds: float) -> str:
    """Return a duration in milliseconds, or in microseconds if it is shorter than 1 ms. Less than 10 us have one
    decimal."""
    if milliseconds >= 0.9995:  # below this a microsecond more or less is seen
        return f"{milliseconds:,.2f} ms"
    microseconds = milliseconds * 1e3
    return f"{microseconds:,.1f} us" if 0 < microseconds < 9.95 else f"{microseconds:,.0f} us"
