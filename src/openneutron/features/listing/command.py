# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron disasm`` and ``openneutron kernels``: the programs and the kernels of compiled files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from openneutron import litert, targets
from openneutron.cli import output
from openneutron.cli.model_source import given_file
from openneutron.compiler.cost.cycles import cpu_rows
from openneutron.device import files, pte
from openneutron.device.converter import kernel_selections
from openneutron.device.forms import LITERT, PTE, form_of
from openneutron.errors import InvalidProgramError
from openneutron.features.report.inspection import header_listing, inspected
from openneutron.features.report.table import facts
from openneutron.isa import Program, decode, listing, payload
from openneutron.isa.kernel_selection import called_kernels
from openneutron.isa.rows import FORMAT_VERSION, MAGIC
from openneutron.litert.neutron_graph import StoredGraph, find


def disasm(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A compiled .tflite or .pte, or a delegate's payload; - for one on standard input."
        ),
    ],
    as_json: output.AsJson = False,
) -> None:
    """List the programs in a compiled file.

    The listing has the buffers, the operators with their parameters, and the instructions. Of microcode of NXP's converter in a
    .tflite it has the words of the header whose meaning is published.
    """
    path = given_file(file)
    foreign = inspected(path) if form_of(path) is LITERT else None
    if foreign is not None:
        listed = [(f"operator {item.operator}", _listing(item)) for item in foreign.stored]
    else:
        listed = [(title, _text(program)) for title, program in programs(path)]
    if not as_json:
        sys.stdout.writelines(f"; {title}\n{text}\n" for title, text in listed)
        return
    data = {"file": path.name, "programs": [{"name": title, "listing": text} for title, text in listed]}
    output.show("", "disasm", data, as_json)


def _listing(item: StoredGraph) -> str:
    return header_listing(item.graph) if item.is_foreign else _text(item.graph.program)


def _text(program: Program) -> str:
    microcode = decode(program)
    return listing(microcode, cpu_rows(targets.with_checksum(microcode.target)))


def programs(path: Path) -> list[tuple[str, Program]]:
    """Return the programs in a file, each with its title.

    Raises InvalidProgramError or InvalidModelError where the file is damaged, or has no program of this project in it.
    """
    form = form_of(path)
    if form is LITERT:
        nodes = find(litert.read(path).model)
        if not nodes:
            raise InvalidProgramError(
                f"'{path.name}' has no NeutronGraph in it. Compile it first: openneutron compile {path}."
            )
        return [(f"operator {node.operator}: {node.name}", node.program) for node in nodes]
    data = path.read_bytes()
    if form is PTE:
        return [(title, contents.program) for title, contents in pte.own_payloads(data, path.name)]
    if MAGIC.to_bytes(4, "little") not in data:
        raise InvalidProgramError(
            f"'{path.name}' is no compiled .tflite or .pte, nor a delegate's payload: there is no Neutron microcode in it."
        )
    return [(path.name, payload.parse(data).program)]


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Kernels that compiled models call.")


@app.command("merge")
def merge(
    selections: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Kernel selections that one version of OpenNeutron wrote.")
    ],
    result: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The merged kernel selection.")],
    as_json: output.AsJson = False,
) -> None:
    """Merge kernel selections into the one that an application with several models links.

    The result registers every kernel that one of the files registers. The order of the files and repeated files change
    nothing.
    """
    kernel_selections.check_path(result)
    merged = kernel_selections.merged(selections)
    files.write({result: merged.text().encode()})
    if as_json:
        output.show("", "kernels merge", {"file": str(result), "kernels": _by_kernel(merged.kernels)}, as_json)


@app.command("list")
def list_kernels(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A kernel selection (.c), or a compiled .pte or .tflite, also on standard input (-)."
        ),
    ],
    as_json: output.AsJson = False,
) -> None:
    """List the kernels that a file registers or calls, with their variants.

    A variant is the part of a kernel for some of its calls. Without a variant in parentheses, it is all of the kernel.
    """
    listed = _listed(given_file(file))
    output.show(_table(listed), "kernels list", listed, as_json)


def _listed(path: Path) -> dict[str, Any]:
    """Return the kernels that a file registers or calls, as values for JSON. The compiler is None unless the file is a
    kernel selection. A kernel selection has no programs."""
    if path.suffix == ".c":
        found = kernel_selections.read_selection(path)
        compiler, version, kernels = found.compiler, found.format_version, found.kernels
        called: list[dict[str, Any]] = []
    else:
        each = programs(path)
        compiler, version, kernels = None, FORMAT_VERSION, called_kernels(program for _, program in each)
        called = [{"name": title, "kernels": _by_kernel(called_kernels((program,)))} for title, program in each]
    return {
        "file": path.name,
        "compiler": compiler,
        "microcode_format": f"0x{version:08X}",
        "programs": called,
        "kernels": _by_kernel(kernels),
    }


def _table(listed: dict[str, Any]) -> RenderableType:
    made_by = "" if listed["compiler"] is None else f"{listed['compiler']}, "
    title = Text.assemble((listed["file"], "bold"), f"  {made_by}microcode format {listed['microcode_format']}")
    rows = [(program["name"], _in_words(program["kernels"])) for program in listed["programs"]]
    if len(rows) != 1:
        rows.append(("all" if rows else "registers", _in_words(listed["kernels"])))
    return Group(title, facts(rows))


def _by_kernel(names: Iterable[str]) -> list[dict[str, Any]]:
    """Group the names of kernels (``softmax_s8``) and variants (``compare_s8:less``) by kernel, as dicts of ``name``
    and ``variants`` for JSON. A kernel that is named without a variant is meant whole, and has no variants."""
    found: dict[str, list[str]] = {}
    for name in names:
        kernel, colon, variant = name.partition(":")
        found.setdefault(kernel, []).extend([variant] if colon else [])
    return [{"name": kernel, "variants": variants} for kernel, variants in found.items()]


def _in_words(kernels: Iterable[dict[str, Any]]) -> str:
    return ", ".join(
        item["name"] + (f" ({', '.join(item['variants'])})" if item["variants"] else "") for item in kernels
    )
