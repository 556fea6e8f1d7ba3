# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, counts and durations as text."""

from __future__ import annotations


def size_text(size: int) -> str:
    """Return a size in bytes, KiB or MiB."""
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:,.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):,.2f} MiB"


def count_text(count: int) -> str:
    """Return a count with a thousand's letter."""
    for letter, unit in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= unit:
            return f"{count / unit:,.1f} {letter}"
    return str(count)


def plural(count: int, what: str) -> str:
    """Return a count with its noun, for instance ``1 partition`` and ``2 partitions``."""
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def duration_text(milliseconds: float) -> str:
    """Return a duration in milliseconds, or in microseconds below one."""
    return f"{milliseconds:,.2f} ms" if milliseconds >= 1 else f"{milliseconds * 1e3:,.0f} us"
