# SPDX-License-Identifier: BSD-3-Clause
"""The call that copies all of a storage to another one."""

from __future__ import annotations

from openneutron.compiler.select.calls import Extents, KernelCall, Storage, View


def copy_of_storage(source: Storage, target: Storage, pitch: int) -> KernelCall:
    """Return the copy of a storage, in rows of ``pitch`` bytes where these are all of it."""
    size = target.size_bytes
    row = pitch if pitch and size % pitch == 0 else size
    extents: Extents = (1, size // row, 1, row)
    views = {
        name: View(storage.name, extents, (size, row, row, 1))
        for name, storage in (("input", source), ("output", target))
    }
    return KernelCall("copy_s8", f"{target.name}@parts", views)
