# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench [SECTION …]`` measures, prints a table for each section, and writes bench/results/SECTION.json (options: ``--help``)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    aot_steps,
    arena,
    attention_budgets,
    audit,
    boards,
    bounds,
    budgets,
    cached,
    calibration,
    compile_cost,
    cortex_a,
    cortex_m,
    depth,
    driver,
    estimates,
    fit_cost,
    fit_cpu,
    frames,
    llama_cpp,
    module_to_pte,
    neutron_s,
    prefetch,
    reference_networks,
    rescale,
    row_stream,
    simulator_speed,
    speech,
    threads,
    trained_networks,
    transformers,
    utilisation,
)

SECTIONS = {
    "compile_cost": compile_cost,
    "arena": arena,
    "budgets": budgets,
    "attention_budgets": attention_budgets,
    "audit": audit,
    "bounds": bounds,
    "row_stream": row_stream,
    "prefetch": prefetch,
    "neutron_s": neutron_s,
    "utilisation": utilisation,
    "simulator_speed": simulator_speed,
    "threads": threads,
    "aot_steps": aot_steps,
    "module_to_pte": module_to_pte,
    "depth": depth,
    "driver": driver,
    "estimates": estimates,
    "fit_cost": fit_cost,
    "fit_cpu": fit_cpu,
    "frames": frames,
    "llama_cpp": llama_cpp,
    "boards": boards,
    "cached": cached,
    "calibration": calibration,
    "cortex_a": cortex_a,
    "cortex_m": cortex_m,
    "reference_networks": reference_networks,
    "rescale": rescale,
    "speech": speech,
    "trained_networks": trained_networks,
    "transformers": transformers,
}
RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench")
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--cmsis-nn", metavar="FOLDER", help="a checkout of CMSIS-NN, for cortex_m")
    parser.add_argument("--page", action="store_true", help="write the section's page of the documentation too")
    parser.add_argument("--litert", metavar="FOLDER", help="LiteRT for aarch64, for cortex_a (bench/cortex_a.py)")
    parser.add_argument("--llama-cpp", metavar="FOLDER", help="the sdist of llama-cpp-python, for llama_cpp")
    parser.add_argument(
        "--qemu",
        action="store_true",
        help="run the networks of driver on aarch64 in qemu-user, and those of frames on Cortex-M33, too",
    )
    options = vars(parser.parse_args(arguments))
    wanted: list[str] = options["sections"]
    # A pipe has no width; a table cut for 80 columns would lose its heads.
    console = Console(width=None if sys.stdout.isatty() else 110)
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        console.print(f"bench has no section '{unknown[0]}'; there are {', '.join(SECTIONS)}.")
        return 2
    RESULTS.mkdir(exist_ok=True)
    for name in wanted or SECTIONS:
        section = SECTIONS[name]
        with console.status(section.TITLE):
            own = {name: options[name] for name in getattr(section, "OPTIONS", ())}
            results = section.measure(**own)
        document = {"section": name, "machine": machine(), "results": results}
        (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
        heads, lines = section.rows(results)
        table = Table(title=section.TITLE, title_justify="left")
        left = (heads[0], *getattr(section, "LEFT", ()))
        for head in heads:
            table.add_column(head, justify="left" if head in left else "right")
        for line in lines:
            table.add_row(*line)
        console.print(table)
        if options["page"] and hasattr(section, "write_page"):
            section.write_page(results, **own)
        console.print(f"written to {RESULTS / f'{name}.json'}\n", highlight=False)
    return 0


def machine() -> dict[str, str | int]:
    """Return the conditions that the figures depend on."""
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def processor() -> str:
    """Return the processor's name, where Linux states it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
