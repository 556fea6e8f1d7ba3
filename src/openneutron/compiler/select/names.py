# SPDX-License-Identifier: BSD-3-Clause
"""The names of kernel calls: the name of a graph's node, and behind it what the compiler adds for a part of the node."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ADDED = re.compile(r"([/:\[].*|_[a-z].*)?", re.DOTALL)
"""Suffixes that the compiler adds to a node's name. A number behind the name makes it another node."""


def node_of(name: str, known: Iterable[str]) -> str:
    """Return the longest known node name that begins the name of a kernel call; empty where there is no such node.

    For example ``conv_1`` for ``conv_1/middle`` where ``conv`` and ``conv_1`` are known.
    """
    found = (node for node in known if name.startswith(node) and _ADDED.fullmatch(name, len(node)))
    return max(found, key=len, default="")


def in_words(name: str, node: str, words: str) -> str:
    """Return the name of a kernel call with the words for its node in place of the node's name.

    For example ``features.3/middle`` for ``conv_1/middle``, and ``cat (net.py:28) transposed`` for ``cat_1_transposed``.
    """
    added = name.removeprefix(node)
    return words + (added.replace("_", " ", 1) if words.endswith(")") and added.startswith("_") else added)
