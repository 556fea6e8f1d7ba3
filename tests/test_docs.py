# SPDX-License-Identifier: BSD-3-Clause
"""The pages under docs/ and the README refer to pages, headings, commands and options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from openneutron import targets
from openneutron.cli.app import application
from openneutron.compiler.cost.cycles import depthwise_macs

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"^openneutron (.*)$|`openneutron ([^`]*)`", re.MULTILINE)


def pages(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def headings(page: Path) -> set[str]:
    """Names that a link can have behind ``#``."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def options_of(command: object) -> set[str]:
    parameters = getattr(command, "params", [])
    return {option for each in parameters for kind in ("opts", "secondary_opts") for option in getattr(each, kind, [])}


def test_links_lead_to_pages_and_headings(root: Path) -> None:
    count = 0
    for page in pages(root):
        for target, heading in LINK.findall(page.read_text()):
            there = page if not target else page.parent / target
            assert there.exists(), f"{page.name}: {target}"
            assert not heading or heading in headings(there), f"{page.name}: {target}#{heading}"
            count += 1
    assert count > 20


def test_commands_and_their_options_exist(root: Path) -> None:
    known = typer.main.get_command(application())
    count = 0
    for page in pages(root):
        for words in (line or quoted for line, quoted in COMMAND.findall(page.read_text())):
            name, *rest = words.partition("#")[0].split()
            if name == "COMMAND":  # any of them
                continue
            assert isinstance(known, TyperGroup)
            if name.startswith("--"):  # options of the application itself
                assert name in options_of(known), f"{page.name}: openneutron {words}"
                continue
            command = known.commands[name]
            if isinstance(command, TyperGroup):
                command = command.commands[rest[0]]
            given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
            assert given <= options_of(command), f"{page.name}: openneutron {words}"
            count += 1
    assert count > 20


def test_the_machine_has_the_numbers_of_its_chip(root: Path) -> None:
    text = (root / "docs/explanation/machine.md").read_text()
    chip = targets.get("imxrt700")
    assert f"* **{chip.pipelines} pipelines of {chip.macs} multiply-accumulates.**" in text
    assert f"A depthwise convolution uses {chip.costs.depthwise_macs.value:g} multipliers in each pipeline." in text
    fitted = [
        str(fact) for fact in (chip.costs.issue_cycles.source, targets.get("imx95").arena_memory.bandwidth.source)
    ]
    assert "to nine published latencies of i.MX RT700 and MCX N" in fitted[0]
    assert "to eight published latencies of i.MX 95" in fitted[1]
    assert "fitted to nine published latencies of i.MX RT700 and MCX N, and to eight of i.MX 95." in text
    explained = (root / "docs/how-to/read-an-explanation.md").read_text()
    assert f"uses {depthwise_macs(chip)} multipliers of {chip.macs} in each pipeline" in explained
    pipelines = {name: targets.get(name).all_pipelines for name in ("imxrt700", "mcxn94x", "imx95")}
    assert "{imxrt700} of i.MX RT700, {mcxn94x} of MCX N, {imx95} of i.MX 95".format(**pipelines) in explained


def test_the_quantizer_example_runs(root: Path) -> None:
    """The first Python block of quantization.md that shows imports makes a quantizer with them."""
    pytest.importorskip("torch")
    from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer

    blocks = re.findall(
        r"^```python\n(.*?)^```$", (root / "docs/quantization.md").read_text(), re.DOTALL | re.MULTILINE
    )
    example = next(block for block in blocks if "import " in block)
    names: dict[str, object] = {}
    exec(example, names)
    quantizer = names["quantizer"]
    assert isinstance(quantizer, NeutronQuantizer)
    assert quantizer.neutron_target_spec is names["spec"]
