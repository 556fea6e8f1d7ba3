# SPDX-License-Identifier: BSD-3-Clause
"""A function is searched for in a file's text, and not refused where the text can't decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from openneutron.cli.model_source import DataParameters, check_early
from openneutron.device.data.python_function import PythonFunction
from openneutron.errors import InvalidModelError


@pytest.mark.parametrize(
    "text",
    [
        "def net(): ...",
        "class net: ...",
        "net = lambda: None",
        "import net",
        "import net.part",
        "from a import b as net",
        "from a import *",
        "try:\n    from a import net\nexcept ImportError:\n    pass",
        "if 1:\n    def net(): ...",
        "with a as (b, net): ...",
        "globals()['n' + 'et'] = 1",
        "def __getattr__(name): ...",
        "def f():\n    global net\n    net = 1",
        "# -*- coding: latin-1 -*-\nnet = '\xe4'",
    ],
)
def test_a_function_that_may_be_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.py").write_bytes(text.encode("latin-1"))
    check_early(PythonFunction(tmp_path / "m.py", "net"), DataParameters(), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def nett(): ...\nclass A:\n    def net(self): ...", "'m.py' has no function 'net'. Did you mean 'nett'?"),
        ("def f():\n    net = 1", "'m.py' has no function 'net'."),
        ("print(net)", "'m.py' has no function 'net'."),
        ("a\n  b", "'m.py:net', line 2: SyntaxError: unexpected indent"),
    ],
)
def test_a_function_that_is_not_there(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.py").write_text(text)
    with pytest.raises(InvalidModelError) as caught:
        check_early(PythonFunction(tmp_path / "m.py", "net"), DataParameters(), None)
    assert str(caught.value) == message
