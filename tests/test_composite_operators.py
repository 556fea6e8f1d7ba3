# SPDX-License-Identifier: BSD-3-Clause
"""The list of composite operators that torch makes faster in the tests is torch's own."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("torch")

from torch._export import utils
from torch.export import default_decompositions, exported_program


def test_the_list_is_torchs_own() -> None:
    listed = exported_program._collect_all_valid_cia_ops
    own = inspect.unwrap(listed)
    assert own is not listed, "torch has other functions now: see tests/support/composite_operators.py"
    assert listed() == own() != set()
    assert utils._materialize_cpp_cia_ops.__module__ == utils.__name__
    assert len(default_decompositions()) > 0
