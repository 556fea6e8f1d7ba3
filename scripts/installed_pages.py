# SPDX-License-Identifier: BSD-3-Clause
"""Install the package as README.md does and run all pages with it: ``python -m scripts.installed_pages FOLDER``

The folder gets a new virtual environment with what the first block of README.md installs, and nothing else. README.md, the
tutorials and the how-to pages then run in it (scripts/run_pages.py), each from its first block to its last. ``--wheel FILE``
installs a wheel instead of the checkout; ``--any-index`` leaves the package indexes to the settings of pip.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALLATION = re.compile(r"^pip install .*$", re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages in the order of their navigation: README.md, tutorials, how-to pages."""
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs/tutorials").glob("*.md")),
        *sorted((ROOT / "docs/how-to").glob("*.md")),
    ]


def installation(wheel: str | None, any_index: bool) -> list[list[str]]:
    """Return the arguments of pip in each line of README.md's installation."""
    commands = []
    for line in INSTALLATION.findall((ROOT / "README.md").read_text().split("\n## ")[0]):
        words = shlex.split(line, comments=True)[1:]
        if any_index and "--index-url" in words:
            del words[(place := words.index("--index-url")) : place + 2]
        commands.append(
            [word.replace(".[", f"{wheel or ROOT}[", 1) if word.startswith(".[") else word for word in words]
        )
    assert commands, "README.md has no line that starts with 'pip install'"
    return commands


def main(folder: Path, wheel: str | None, any_index: bool) -> None:
    """Make the environment and run the pages. Raises CalledProcessError where a command fails."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
    python = environment.absolute() / "bin" / "python"
    for command in installation(wheel, any_index):
        subprocess.run([str(python), "-m", "pip", "--disable-pip-version-check", *command], check=True)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run = [str(python), "-W", "ignore", str(ROOT / "scripts/run_pages.py"), str((folder / "pages.json").absolute())]
    subprocess.run([*run, *map(str, pages())], env={**kept, "PATH": path}, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheel")
    parser.add_argument("--any-index", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    main(asked.folder, asked.wheel, asked.any_index)
