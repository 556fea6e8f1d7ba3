# SPDX-License-Identifier: BSD-3-Clause
"""The programs that tests start, and the skip of a test whose program is not installed.

compiler = required("arm-none-eabi-gcc")      # its path; the test is skipped where it is absent
compiler = required("clang", "gcc")           # the first one that is there
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from unittest import SkipTest

INSTALLED_BY = "make tools"
"""The command that installs every program of the tests, on Debian and Ubuntu."""

_MISSING = re.compile(r"(?:Skipped: |unittest\.case\.SkipTest: )?(\S+(?: or \S+)*) is not installed")


def required(*names: str) -> str:
    """Return the path of the first of these programs that is installed. Raises SkipTest, which skips the test, where none is."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise SkipTest(f"{' or '.join(names)} is not installed")
    return found


@cache
def sanitizing_compiler(flags: tuple[str, ...]) -> str:
    """Return the path of clang or gcc, whichever can link a program with these sanitizer flags.

    clang's sanitizers are a package of their own, which can be absent. Raises SkipTest where neither links.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "main.c"
        source.write_text("int main(void) { return 0; }\n")
        for path in filter(None, map(shutil.which, ("clang", "gcc"))):
            command: Sequence[str] = (path, *flags, str(source), "-o", str(Path(folder) / "main"))
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return path
    raise SkipTest("libclang-rt-dev or libasan is not installed")


def summary(reasons: Iterable[str]) -> list[str]:
    """Return the line that ends a test run and names the absent programs; empty where none was absent.

    reasons: the reasons of all skipped tests.
    """
    missing = Counter(found[1] for reason in reasons if (found := _MISSING.match(reason)))
    if not missing:
        return []
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
    return [
        f"{missing.total()} tests were skipped, because programs are not installed: {listed}. `{INSTALLED_BY}` installs them."
    ]
