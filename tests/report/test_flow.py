# SPDX-License-Identifier: BSD-3-Clause
"""The calls of a file between its inputs and outputs."""

from __future__ import annotations

import pytest

from openneutron.device import pte
from openneutron.features.report.page import graph


def test_methods_that_return_a_constant_have_no_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    computes = pte.Method("forward", (None, None), (0,), (1,), (pte.KernelCall("aten::abs.out", (0, 1)),), ())
    constant = pte.Method("preprocessing", ("mean=0.5",), (), (0,), (), ())
    monkeypatch.setattr(pte, "methods", lambda data, name: [computes, constant])
    found = graph._of_pte(b"", "net.pte")
    assert (found.inputs, found.outputs) == (("forward:0",), ("forward:1",))
    assert [call.operator for call in found.calls] == ["aten.abs"]
