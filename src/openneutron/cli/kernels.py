# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron kernels``: what compiled models call, and kernel selections merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from openneutron import files
from openneutron.cli import output
from openneutron.cli.disasm import programs
from openneutron.converter import kernel_selections
from openneutron.files import existing
from openneutron.isa.kernel_selection import called_kernels
from openneutron.isa.rows import FORMAT_VERSION

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Kernels that compiled models call.")


@app.command("merge")
def merge(
    selections: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Kernel selections that one version of OpenNeutron wrote.")
    ],
    result: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The merged kernel selection.")],
) -> None:
    """Merge kernel selections into the one that an application with several models links.

    It registers every kernel that one of them registers. Their order changes nothing, nor does one that is there twice.
    """
    kernel_selections.check_path(result)
    files.write({result: kernel_selections.merged(selections).text().encode()})


@app.command("list")
def list_kernels(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A kernel selection (.c), or a compiled .pte or .tflite.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
) -> None:
    """List the kernels that a file registers or calls, with their variants.

    A variant is the part of a kernel for some of its calls. Without a variant in parentheses, it is all of the kernel.
    """
    listed = _listed(existing(file))
    if as_json:
        output.show_json(listed.to_dict())
    else:
        output.show(listed.table())


@dataclass(frozen=True, slots=True)
class _Listed:
    """The kernels that a file registers or calls. ``compiler`` is known of kernel selections alone; ``programs`` are those of a compiled model."""

    file: str
    compiler: str | None
    format_version: int
    kernels: tuple[str, ...]
    programs: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "compiler": self.compiler,
            "microcode_format": f"0x{self.format_version:08X}",
            "programs": [{"name": name, "kernels": _by_kernel(kernels)} for name, kernels in self.programs],
            "kernels": _by_kernel(self.kernels),
        }

    def table(self) -> RenderableType:
        made_by = "" if self.compiler is None else f"{self.compiler}, "
        title = Text.assemble((self.file, "bold"), f"  {made_by}microcode format 0x{self.format_version:08X}")
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="cyan", no_wrap=True)
        rows.add_column()
        for name, kernels in self.programs:
            rows.add_row(name, _in_words(kernels))
        if len(self.programs) != 1:
            rows.add_row("all" if self.programs else "registers", _in_words(self.kernels))
        return Group(title, Padding(rows, (0, 0, 0, 2)))


def _listed(path: Path) -> _Listed:
    if path.suffix == ".c":
        found = kernel_selections.read_selection(path)
        return _Listed(path.name, found.compiler, found.format_version, found.kernels)
    each = programs(path)
    called = tuple((title, called_kernels((program,))) for title, program in each)
    return _Listed(path.name, None, FORMAT_VERSION, called_kernels(program for _, program in each), called)


def _by_kernel(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return each kernel with its variants; none where it is all of the kernel."""
    found: dict[str, list[str]] = {}
    for name in names:
        kernel, colon, variant = name.partition(":")
        found.setdefault(kernel, []).extend([variant] if colon else [])
    return [{"name": kernel, "variants": variants} for kernel, variants in found.items()]


def _in_words(names: Iterable[str]) -> str:
    return ", ".join(
        item["name"] + (f" ({', '.join(item['variants'])})" if item["variants"] else "") for item in _by_kernel(names)
    )
