# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions of an inference on Cortex-M cores: our runtime, and beside it Arm's CMSIS-NN.

``python -m bench cortex_m --cmsis-nn FOLDER`` takes a checkout of CMSIS-NN; without one, our figures stand alone. QEMU counts,
and the counts are the same on every machine. They are an amount of work and no time: a load of several registers is one
instruction, and memories and flash have wait states.

Both libraries are compiled with the same compiler and flags. Our count is that of the whole driver call; CMSIS-NN's is the
sum of its kernel calls, without an interpreter.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import child
from tests.cortex_m33.boards import CORTEX_M4, CORTEX_M7, CORTEX_M33, CORTEX_M55, Board

TITLE = "Instructions of one inference on Cortex-M (QEMU counts them)"
OPTIONS = ("cmsis_nn",)
LEFT = ("build",)
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")
CORES = {"M4": CORTEX_M4, "M7": CORTEX_M7, "M33": CORTEX_M33, "M55": CORTEX_M55}
COMPILERS = {"gcc": "arm-none-eabi-gcc", "clang": "clang"}
LEVELS = ("-O2", "-Os", "-O3")
BUILDS = {
    "M4": ("gcc -O2", "gcc -Os"),
    "M7": ("gcc -O2",),
    "M33": ("gcc -O2", "gcc -Os", "gcc -O3", "clang -O2"),
    "M55": ("gcc -O2", "gcc -Os", "clang -O2"),
}
"""The builds that are counted on each core. Kernels for M4 and M33 are the same code, with the same counts but for a few instructions."""
LAYERS_OF = "gcc -O2"
"""The build whose layers are printed one by one."""
COMPARED = ("M33", "M55")
"""The cores whose layers are compared. Networks of more than a megabyte are counted on these alone, in the build of LAYERS_OF."""
DOCS = Path(__file__).parents[1] / "docs"
PAGE, PLOT = DOCS / "cortex-m.md", DOCS / "assets" / "cortex-m.svg"


def measure(cmsis_nn: str | None = None) -> dict[str, Any]:
    """For each shared model, core and build: the counts, bytes of code, and the model's RAM and flash; nothing without the tools."""
    if any(shutil.which(tool) is None for tool in TOOLS):
        return {}
    folder = "" if cmsis_nn is None else str(Path(cmsis_nn).resolve())
    return child.module_json("bench.cortex_m", folder, *map(str, child.shared_models()))  # type: ignore[no-any-return]


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table; layers below their model, indented; last the geometric means."""
    heads = ("model", "build", "ours", "CMSIS-NN", "ratio", "code", "their code", "RAM", "flash")
    lines = [] if results else [(f"left out: it takes {' and '.join(TOOLS)}", *("-",) * 8)]
    ratios: dict[str, list[float]] = {}
    for model, cell in results.items():
        for build, counted in cell["builds"].items():
            ours, theirs = counted["ours"], counted["theirs"]
            sizes = f"{ours['code_bytes']:,}", f"{theirs['code_bytes']:,}" if theirs else "-"
            memory = f"{ours['ram_bytes']:,}", f"{ours['flash_bytes']:,}"
            total = theirs and sum(theirs["layers"].values())
            lines.append((child.short_name(model), build, *_counts(ours["total"], total), *sizes, *memory))
            if total:
                ratios.setdefault(build, []).append(ours["total"] / total)
            if build.endswith(LAYERS_OF):
                for layer, count in ours["layers"].items():
                    beside = theirs and theirs["layers"].get(layer)
                    lines.append((f"  {cell['kinds'].get(layer, layer)}", "", *_counts(count, beside), *("",) * 4))
    for build, values in ratios.items():
        lines.append(("geometric mean", build, "", "", f"{_mean(values):.3f}", *("",) * 4))
    return heads, lines


def write_page(results: dict[str, Any], cmsis_nn: str | None) -> None:
    """Write docs/cortex-m.md and its plot from results with CMSIS-NN's counts."""
    assert cmsis_nn is not None, "the page compares with CMSIS-NN: --cmsis-nn FOLDER"
    versions = _versions(Path(cmsis_nn))
    PAGE.write_text(page(results, versions))
    PLOT.write_text(plot(results, versions))


def plot(results: dict[str, Any], versions: dict[str, str]) -> str:
    """Return docs/assets/cortex-m.svg, which vl-convert draws: bars of the instructions on each core, ours and CMSIS-NN's, for each network."""
    import vl_convert

    bars = [
        {"network": child.short_name(model), "core": core, "library": library, "millions": count / 1e6}
        for model, cell in results.items()
        for core in CORES
        for counted in [cell["builds"].get(f"{core} {LAYERS_OF}")]
        if counted
        for library, count in (
            ("OpenNeutron", counted["ours"]["total"]),
            ("CMSIS-NN", sum(counted["theirs"]["layers"].values())),
        )
    ]
    made_with = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "clang")
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": "#ffffff",
        "title": {"text": f"Millions of instructions of one inference on Cortex-M, {LAYERS_OF}", "subtitle": made_with},
        "data": {"values": bars},
        "facet": {
            "column": {"field": "network", "title": None, "sort": [child.short_name(model) for model in results]}
        },
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 130,
            "height": 180,
            "mark": "bar",
            "encoding": {
                "x": {"field": "core", "title": None, "sort": list(CORES), "axis": {"labelAngle": 0}},
                "xOffset": {"field": "library", "sort": ["OpenNeutron", "CMSIS-NN"]},
                "y": {"field": "millions", "type": "quantitative", "title": None},
                "color": {
                    "field": "library",
                    "title": None,
                    "sort": ["OpenNeutron", "CMSIS-NN"],
                    "scale": {"range": ["#3f7fd1", "#8d93a1"]},
                    "legend": {"orient": "bottom"},
                },
            },
        },
    }
    return str(vl_convert.vegalite_to_svg(spec)) + "\n"


def _versions(cmsis_nn: Path) -> dict[str, str]:
    """Return the version of CMSIS-NN, of the tools and of QEMU, and the date, by their names."""
    from scripts.firmware_build import version

    header = (cmsis_nn / "Include" / "arm_nnfunctions.h").read_text()
    revision = re.search(r"\$Date: +(.+?)\n.*?\$Revision: +V\.(\S+)", header, re.DOTALL)
    versions = {"CMSIS-NN": f"(API {revision[2]} of {revision[1].strip()})" if revision else "(unknown)"}
    for name, command in COMPILERS.items():
        if shutil.which(command) is not None:
            versions[name] = version(name).split()[-1]
    said = subprocess.run(["qemu-system-arm", "--version"], capture_output=True, text=True, check=True).stdout
    versions["QEMU"] = said.split()[3]
    return {**versions, "on": datetime.now(UTC).date().isoformat()}


def page(results: dict[str, Any], versions: dict[str, str]) -> str:
    """Return docs/cortex-m.md. ``versions``: what each tool says of itself, by its name."""
    totals: dict[str, dict[str, str]] = {}
    ratios: dict[str, list[float]] = {}
    sizes = []
    for model, cell in results.items():
        for build, counted in sorted(cell["builds"].items(), key=_order):
            ours, theirs = counted["ours"], counted["theirs"]
            ratio = ours["total"] / sum(theirs["layers"].values())
            ratios.setdefault(build, []).append(ratio)
            totals.setdefault(build, {})[model] = f"{ours['total'] / 1e6:.2f}, {ratio:.2f}"
            if build.endswith(("gcc -Os", LAYERS_OF)):
                sizes.append(
                    f"| {child.short_name(model)} | {build} | {ours['code_bytes']:,} | {theirs['code_bytes']:,} "
                    f"| {ours['ram_bytes']:,} | {ours['flash_bytes']:,} |"
                )
    names = [child.short_name(model) for model in results]
    helium, layers = _on_compared_cores(results)
    lines = [
        _INTRODUCTION.format(tools=", ".join(f"{name} {version}" for name, version in versions.items())),
        f"| build | {' | '.join(names)} | geometric mean |",
        f"| --- |{' ---: |' * (len(names) + 1)}",
        *(
            f"| {build} | {' | '.join(totals[build].get(model, '-') for model in results)} | {_mean(values):.2f} |"
            for build, values in sorted(ratios.items(), key=_order)
        ),
        "\n## Helium\n\nMillions of instructions of our runtime on Cortex-M33, which has the DSP extension, and on Cortex-M55 with the integer "
        f"vectors of Helium, {LAYERS_OF}.\n",
        "| network | M33 | M55 | ratio |",
        "| --- | ---: | ---: | ---: |",
        *helium,
        "\n## Memory\n\nBytes. Code: of ours the driver and the kernels of the network, of CMSIS-NN the kernels alone. "
        "RAM: the arena, inputs and outputs of our program. Flash: our code, weights and microcode.\n",
        "| network | build | code | CMSIS-NN's code | RAM | flash |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        *sizes,
        f"\n## Layers\n\nInstructions of each layer on Cortex-M33 and Cortex-M55, {LAYERS_OF}.\n",
        "| network | layer | M33: ours | CMSIS-NN | ratio | M55: ours | CMSIS-NN | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *layers,
    ]
    return "\n".join(lines) + "\n"


def _on_compared_cores(results: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the rows of the networks and of their layers on the compared cores."""
    compared = {
        model: [cell["builds"][f"{core} {LAYERS_OF}"] for core in COMPARED]
        for model, cell in results.items()
        if all(f"{core} {LAYERS_OF}" in cell["builds"] for core in COMPARED)
    }
    helium = [
        f"| {child.short_name(model)} | {plain / 1e6:.2f} | {vectors / 1e6:.2f} | {vectors / plain:.3f} |"
        for model, counted in compared.items()
        for plain, vectors in [[each["ours"]["total"] for each in counted]]
    ]
    layers = [
        f"| {child.short_name(model)} | {results[model]['kinds'].get(layer, layer)} | {' | '.join(cells)} |"
        for model, counted in compared.items()
        for layer in counted[0]["ours"]["layers"]
        if layer in counted[0]["theirs"]["layers"]
        for cells in [
            [
                f"{ours:,} | {theirs:,} | {ours / theirs:.2f}"
                for each in counted
                for ours, theirs in [(each["ours"]["layers"].get(layer, 0), each["theirs"]["layers"][layer])]
            ]
        ]
    ]
    return helium, layers


_INTRODUCTION = """\
<!-- Written by `python -m bench cortex_m --cmsis-nn FOLDER --page`; do not edit. -->
# Instructions on Cortex-M

The kernels of this project beside those of Arm's CMSIS-NN, on the int8 networks of MLPerf Tiny and on MobileNetV2 1.0 224. QEMU counts
the instructions of one inference, so that the figures are the same on every machine. They are no times: a load of several registers
is one instruction and takes a cycle for each register and more, and memories have wait states.

Both libraries are compiled with the same compiler and flags. Our count is that of `neutronRunBlocking`, with the driver; CMSIS-NN's
is the sum of its kernel calls, with the parameters that LiteRT derives from the file, and without an interpreter. Our outputs equal
LiteRT's in every byte; those of CMSIS-NN differ by 1 at most, in networks of fully connected layers, which LiteRT rounds once.
CMSIS-NN has no kernel for `mean`; an average pool counts in its place.

Made with {tools}, by `python -m bench cortex_m --cmsis-nn FOLDER --page`, which draws the plot with Vega-Lite.

![Millions of instructions of one inference on each core, of this project and of CMSIS-NN](assets/cortex-m.svg)

Millions of instructions of our runtime, and the ratio to those of CMSIS-NN ("-": not counted):
"""


def _order(item: tuple[str, Any]) -> tuple[int, int, int]:
    """Return the place of a build among the cores, compilers and levels."""
    core, compiler, level = item[0].split()
    return list(CORES).index(core), list(COMPILERS).index(compiler), LEVELS.index(level)


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _counts(ours: int, theirs: int | None) -> tuple[str, str, str]:
    return f"{ours:,}", f"{theirs:,}" if theirs else "-", f"{ours / theirs:.2f}" if theirs else "-"


def _measured(model: Path, cmsis_nn: Path | None) -> dict[str, Any]:
    import numpy as np

    from bench import cmsis_nn as theirs
    from openneutron import litert, targets
    from openneutron.compiler import CompileOptions, compile_graph
    from openneutron.device.simulator import Simulator
    from openneutron.litert.interpret import interpret

    graph = litert.read(model).graph
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, graph[name].shape, np.int8) for name in graph.inputs]
    given = b"".join(values.tobytes() for values in inputs)
    wanted = b"".join(value.tobytes() for value in interpret(model.read_bytes(), inputs))
    builds: dict[str, Any] = {}
    for core, board in CORES.items():
        result = compile_graph(graph, targets.get(board.core.lower()), CompileOptions(io_place="caller"))
        with Simulator(result.program) as simulator:
            outputs = b"".join(value.tobytes() for value in simulator.run([values.view(np.uint8) for values in inputs]))
        assert outputs == wanted, f"{model.name}: our outputs are not LiteRT's"
        for build in BUILDS[core]:
            compiler, level = build.split()
            too_large = model.stat().st_size > 1 << 20 and (core not in COMPARED or build != LAYERS_OF)
            if too_large or shutil.which(COMPILERS[compiler]) is None:
                continue
            cell: dict[str, Any] = {"ours": _ours(result, graph, given, level, compiler, board), "theirs": None}
            if cmsis_nn is not None:
                counted = theirs.run(cmsis_nn, graph, given, level, compiler, board)
                apart = np.frombuffer(counted.outputs, np.int8).astype(int) - np.frombuffer(wanted, np.int8)
                cell["theirs"] = {
                    "layers": counted.layers,
                    "code_bytes": counted.code_bytes,
                    "largest_difference": int(abs(apart).max()),
                }
            builds[f"{core} {build}"] = cell
    return {"builds": builds, "kinds": {node.name: _kind(graph, node) for node in graph.nodes}}


def _kind(graph: Any, node: Any) -> str:
    """Return an operator's name in a table: what it is, and the shape of its output."""
    extents = "x".join(str(extent) for extent in graph[node.outputs[0]].shape[1:])
    kernel = graph.operand(node, 1)
    if node.op in ("conv_2d", "depthwise_conv_2d"):
        stride = f"/{node['stride_h']}" if node["stride_h"] != 1 else ""
        return f"{node.op} {kernel.shape[1]}x{kernel.shape[2]}{stride} {extents}"
    return f"{node.op} {extents}"


def _ours(result: Any, graph: Any, inputs: bytes, level: str, compiler: str, board: Board) -> dict[str, Any]:
    import openneutron
    from openneutron.isa.kernel_selection import KernelSelection, called_kernels
    from tests.cortex_m33 import link_map
    from tests.cortex_m33.firmware import RUNNER, image, library
    from tests.cortex_m33.instructions import instructions

    kernels = called_kernels([result.program])
    text = KernelSelection(f"OpenNeutron {openneutron.__version__}", kernels).text()
    linked = image(library((level,), compiler, _sources(kernels), board), RUNNER, text, board=board)
    counted = instructions(result.program, inputs, linked)
    names = [node.name for node in graph.nodes]
    layers: dict[str, int] = {}
    operators = [operator.name for operator in result.report.operators]
    for operator, _, count in counted.calls:
        # A call of a part of a layer has the layer's name and a suffix.
        layer = max((name for name in names if operators[operator].startswith(name)), key=len, default="other")
        layers[layer] = layers.get(layer, 0) + count
    sections = link_map.read(linked.map).sections
    code = sum(size for (member, _), size in sections.items() if member.startswith(("libneutron.a(", "kernel_sel")))
    report = result.report
    return {
        "total": counted.total,
        "layers": layers,
        "code_bytes": code,
        "ram_bytes": report.sram_bytes,
        "flash_bytes": code + report.weights_bytes + report.microcode_bytes,
    }


def _sources(kernels: Iterable[str]) -> tuple[Path, ...]:
    """Return the driver and the folders of these kernels, which share code with that of conv_2d."""
    from tests.cortex_m33.firmware import RUNTIME

    folders = {"conv_2d", *(name.partition(":")[0].rpartition("_")[0] for name in kernels)}
    found = (path for folder in sorted(folders) for path in sorted(RUNTIME.glob(f"kernels/{folder}/*.c")))
    return (*sorted(RUNTIME.glob("driver/*.c")), *sorted(RUNTIME.glob("kernels/*.c")), *found)


if __name__ == "__main__":
    checkout = Path(sys.argv[1]) if sys.argv[1] else None
    print(json.dumps({Path(model).stem: _measured(Path(model), checkout) for model in sys.argv[2:]}))
