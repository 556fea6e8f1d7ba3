# SPDX-License-Identifier: BSD-3-Clause
"""Results of earlier compiles in a folder, under hashes of all that they depend on."""

from openneutron.device.cache.store import Store, caching, current, opened

__all__ = ["Store", "caching", "current", "opened"]
