# SPDX-License-Identifier: BSD-3-Clause
"""docs/firmware.md: the library on a Cortex-M33, with its sizes and its stack as the compilers that are here make them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import openneutron
from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.ir import Graph
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from scripts.firmware_build import (
    API,
    BUILDS,
    COMMANDS,
    ROOT,
    Build,
    Image,
    Library,
    libraries,
    link,
    missing_tools,
    version,
)
from scripts.firmware_stack import CallGraph, call_graph
from scripts.published_networks import Chain, cifarnet, mobilenet_v1

PAGE = ROOT / "docs" / "firmware.md"
TEXT = Path(__file__).with_name("firmware_page.txt")
"""The page without its tables, whose places are marked with @NAME@."""

TARGET = "imxrt700"


def autoencoder() -> Graph:
    """Return MLPerf Tiny's anomaly detection: ten fully connected layers, 640 - 128 x 4 - 8 - 128 x 4 - 640."""
    chain = Chain("autoencoder", (1, 640))
    for outputs in (*(128,) * 4, 8, *(128,) * 4, 640):
        chain.fully_connected(outputs)
    return chain.graph()


NETWORKS: dict[str, Callable[[], Graph]] = {
    "CifarNet": cifarnet,
    "FC autoencoder (MLPerf Tiny anomaly detection)": autoencoder,
    "MobileNetV1": mobilenet_v1,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One build: the library whole, and linked for each network."""

    library: Library
    whole: Image
    networks: dict[str, Image]
    graph: CallGraph


def selection_of(graph: Graph) -> KernelSelection:
    """Return the kernels that a graph's program calls."""
    program = compile_graph(graph, targets.get(TARGET)).program
    return KernelSelection(f"OpenNeutron {openneutron.__version__}", called_kernels([program]))


def api() -> list[str]:
    """Every function of the driver's header, with the Cortex-M33's port, which has no threads."""
    header = (ROOT / "runtime" / "include" / "NeutronDriver.h").read_text()
    header = re.sub(r"^#ifdef NEUTRON_THREADS.*?^#endif", "", header, flags=re.MULTILINE | re.DOTALL)
    return [*re.findall(r"^(?:\w+ |const char \*)(neutron[A-Z]\w*)\(", header, re.MULTILINE), "neutron_cortex_m33_port"]


def network_selections() -> dict[str, str]:
    """Return the kernel selection of each network, as C."""
    return {name: selection_of(make()).text() for name, make in NETWORKS.items()}


def measure(library: Library, selections: dict[str, str]) -> Measured:
    """Links one build, whole and for each of these networks."""
    networks = {
        name: link(library, f"network_{number}", text) for number, (name, text) in enumerate(selections.items())
    }
    return Measured(library, link(library, "whole", calls=api()), networks, call_graph(library))


# ---- the tables -------------------------------------------------------------------------------------------------------


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |\n"


def _head(first: str, *more: str) -> str:
    columns = (first, *(str(build) for build in BUILDS), *more)
    return _row(*columns) + _row("---", *["---:"] * (len(columns) - 1))


def part_of(library: Library, member: str) -> str:
    """Return the row of the table in which an object counts: a folder of runtime/kernels, or another part of the library."""
    source = library.sources.get(member)
    if source is None:
        return "table of kernels" if member.endswith("_kernel_selection.o") else "C library"
    if source.parent.name == "kernels":
        return "table of kernels" if member == "table.o" else "what kernels share"
    if source.name == "queue.c":
        return QUEUE
    return {"driver": "driver", "cortex_m33": "port"}.get(source.parent.name, source.parent.name)


def sizes(library: Library, image: Image, *prefixes: str) -> dict[str, int]:
    """Bytes of sections with these prefixes, by part."""
    found: dict[str, int] = {}
    for section, member, size in image.sections:
        if section.startswith(prefixes):
            part = part_of(library, member)
            found[part] = found.get(part, 0) + size
    return found


def flash(image: Image) -> int:
    """Everything in an image that is in flash: code, constants, and what the linker needs to unwind nothing."""
    return image.bytes_of(".text", ".rodata", ".ARM.ex", ".data")


def kernel_folders() -> list[str]:
    return sorted(path.name for path in (ROOT / "runtime" / "kernels").iterdir() if path.is_dir())


QUEUE = "queue of runs"
FIRST = ("driver", QUEUE, "what kernels share", "table of kernels", "port", "C library")


def _code(measured: dict[Build, Measured]) -> str:
    lines = [_head("part")]
    code = {build: sizes(item.library, item.whole, ".text") for build, item in measured.items()}
    constants = {build: sizes(item.library, item.whole, ".rodata") for build, item in measured.items()}
    for part in (*FIRST, *kernel_folders()):
        title = f"`{part}`" if part not in FIRST else part
        lines.append(_row(title, *(_plus(code[build].get(part, 0), constants[build].get(part, 0)) for build in BUILDS)))
    totals = [_plus(sum(code[build].values()), sum(constants[build].values())) for build in BUILDS]
    lines.append(_row("**all**", *totals))
    return "".join(lines)


def _plus(code: int, constants: int) -> str:
    return f"{code:,} + {constants:,}" if constants else f"{code:,}"


def kernels_text(item: Measured) -> int:
    """Bytes of code of all kernels and what they share, without the driver and the C library."""
    found = sizes(item.library, item.whole, ".text")
    return sum(size for part, size in found.items() if part not in ("driver", QUEUE, "port", "C library"))


def _images(measured: dict[Build, Measured]) -> str:
    lines = [_head("network")]
    for name in NETWORKS:
        lines.append(_row(name, *(f"{flash(item.networks[name]):,}" for item in measured.values())))
    return "".join(lines)


def _parts(measured: dict[Build, Measured]) -> str:
    item = measured[BUILDS[0]]
    lines = []
    for name in NETWORKS:
        found = sizes(item.library, item.networks[name], ".text", ".rodata", ".ARM.ex")
        said = ", ".join(f"{part} {size:,}" for part, size in sorted(found.items(), key=lambda pair: -pair[1]))
        lines.append(f"* {name}: {said}.\n")
    return "".join(lines)


def run_depths(graph: CallGraph, library: Library) -> dict[str, int]:
    """Bytes below neutronRunBlocking where a program calls the kernels of one folder."""
    found: dict[str, int] = {}
    for name, member in graph.runs().items():
        folder = library.sources[member].parent.name
        found[folder] = max(found.get(folder, 0), graph.depth("neutronRunBlocking", [name]).bytes)
    return found


RUNNERS = frozenset(
    {"neutronRunBlocking", "neutronRunNonBlocking", "neutronWait", "neutronRunQueued", "neutronPoll", "neutronServe"}
)
"""The functions of the header that run a program."""


def queue_depth(graph: CallGraph) -> int:
    """Bytes that the queue adds to ``neutronRunBlocking``, at most."""
    return max(graph.depth(name).bytes for name in RUNNERS) - graph.depth("neutronRunBlocking").bytes


def other_depth(graph: CallGraph) -> int:
    """Bytes below any function of the header that neither prepares nor runs a program."""
    others = set(api()) - {"neutronModelPrepare"} - RUNNERS
    return max(graph.depth(name).bytes for name in others)


def _stack(measured: dict[Build, Measured]) -> str:
    lines = [_head("function")]
    depths = {build: run_depths(item.graph, item.library) for build, item in measured.items()}
    prepare = [item.graph.depth("neutronModelPrepare").bytes for item in measured.values()]
    lines.append(_row("`neutronModelPrepare`, any kernels", *map(_number, prepare)))
    lines.append(
        _row("any other function of the header", *(_number(other_depth(item.graph)) for item in measured.values()))
    )
    queue = (queue_depth(item.graph) for item in measured.values())
    lines.append(_row("a function of the queue, in addition to `neutronRunBlocking`", *map(_number, queue)))
    deepest = (max(depth.values()) for depth in depths.values())
    lines.append(_row("`neutronRunBlocking`, any kernels", *map(_number, deepest)))
    for folder in sorted(depths[BUILDS[0]]):
        lines.append(_row(f"`neutronRunBlocking`, `{folder}`", *(_number(depth[folder]) for depth in depths.values())))
    return "".join(lines)


def _number(value: int) -> str:
    return f"{value:,}"


def _versions() -> str:
    return " and ".join(version(compiler) for compiler in COMMANDS)


def _ram_bytes(images: Iterable[Image]) -> int:
    return max(image.bytes_of(".bss", ".data") for image in images)


def _library_bytes(measured: dict[Build, Measured]) -> tuple[int, int]:
    """Return the bytes of RAM that the driver has of its own, without the queue of runs and with it."""
    alone = _ram_bytes(image for item in measured.values() for image in item.networks.values())
    return alone, _ram_bytes(item.whole for item in measured.values())


def fill(values: dict[str, str]) -> str:
    """Return the page with its marks replaced by these figures."""
    text = TEXT.read_text()
    names = re.findall(r"@([A-Z]+)@", text)
    assert set(names) == values.keys(), (names, values.keys())
    return re.sub(r"@([A-Z]+)@", lambda mark: values[mark[1]], text)


def made_with(page: str) -> str:
    """Return the compilers that a page names as its own; empty where the page names none."""
    found = re.search(r"^Made with (.*)\.$", page, re.MULTILINE)
    return found[1] if found else ""


def obstacle(page: str) -> str | None:
    """Return the reason why a page can't be made on this computer, or None."""
    missing = missing_tools()
    if missing:
        return f"{', '.join(missing)}: not installed"
    here = _versions()
    if page and made_with(page) != here:
        return f"it was made with {made_with(page)}; here are {here}, which make other sizes"
    return None


def text() -> str:
    """Return docs/firmware.md. Where other compilers are installed, the page stays as it is, and a line on stderr states the reason."""
    page = PAGE.read_text() if PAGE.exists() else ""
    why = obstacle(page)
    if why is not None:
        sys.stderr.write(
            f"docs/firmware.md stays as it is: {why}. `python -m scripts.firmware_page` makes it with those that are here.\n"
        )
        return page
    return made()


def made() -> str:
    """Return docs/firmware.md of the installed compilers. Raises MissingToolError where one is missing."""
    selections = network_selections()
    measured = {build: measure(library, selections) for build, library in libraries().items()}
    alone, whole = _library_bytes(measured)
    return fill(
        {
            "VERSIONS": _versions(),
            "BSS": f"{alone}",
            "QUEUE": f"{whole - alone}",
            "CODE": _code(measured),
            "IMAGES": _images(measured),
            "PARTS": _parts(measured),
            "STACK": _stack(measured),
            "CALLS": _listed(API),
        }
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(made())
