# SPDX-License-Identifier: BSD-3-Clause
"""The time, the bounds and the memory of a language model are in the text, in the JSON and in the page of its report."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.decoders import SHAPES, Shape, random_decoder
from openneutron import targets
from openneutron.api.reporting import stored_data
from openneutron.cli import main
from openneutron.features.report.page.language import CHOSEN, facts_of
from openneutron.language.model import Interface
from openneutron.language.program import Plan, compiled
from openneutron.language.times import chooser

pytest.importorskip("torch")

from openneutron.pytorch.language.package import packaged

ROWS, CONTEXT, WORDS = 64, 256, 512


def _file(path: Path, name: str) -> Path:
    """Write a decoder of three layers for a target."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SHAPES, "small", Shape(3, 256, 4, 2, 64, 512, WORDS))
        decoder = random_decoder("small", 4, 32, context=CONTEXT)
    chip = targets.described(name)
    target = chip if chip.cpu is not None else targets.host_with_jobs(chip)
    program = compiled(decoder, target, Plan(ROWS, chooser(target, ROWS))).program
    path.write_bytes(packaged(program, Interface(ROWS, CONTEXT, WORDS)))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _file(tmp_path_factory.mktemp("language") / "small.pte", "imx95")


def test_text_json_and_page_have_the_facts_of_the_program(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["explain", str(model)]) == 0
    text = capsys.readouterr().out
    assert main(["report", str(model), "--json", "--output", str(page)]) == 0
    printed = json.loads(capsys.readouterr().out)
    (facts,) = printed["language"]
    assert (facts["layers"], facts["rows"], facts["context"], facts["vocabulary"]) == (3, ROWS, CONTEXT, WORDS)
    html = page.read_text()
    for phase in facts["phases"]:
        named = {part["name"]: part for part in phase["parts"]}
        assert list(named) == [
            *(
                "embedding",
                "norms",
                "queries, keys, values",
                "attention",
                "output of attention",
                "MLP up",
                "activation",
            ),
            *("MLP down", "head"),
        ]
        counted = [part for part in phase["parts"] if part["is_counted"]]
        assert math.fsum(part["seconds"] for part in counted) == pytest.approx(phase["seconds"])
        assert math.fsum(part["size_bytes"] for part in counted) == pytest.approx(phase["size_bytes"])
        assert phase["bound_seconds"] <= phase["seconds"] * (1 + 1e-9)
        assert phase["low_seconds"] < phase["seconds"] < phase["high_seconds"]
        assert [named[name]["calls"] for name in ("embedding", "norms", "MLP up", "head")] == [1, 7, 3, 1]
        for part in named.values():
            if part["npu_seconds"] is not None and part["is_counted"]:
                assert part["seconds"] <= min(part["npu_seconds"], part["cpu_seconds"]) * (1 + 1e-9), part
                assert (part["place"] == "CPU") == (part["seconds"] == part["cpu_seconds"]), part
        assert part["name"] in text and f"<td>{part['name']}</td>" in html
    assert "Prefill of 64 tokens" in text and "Decode at position 255" in text
    assert '<section id="tokens"' in html and '<section id="graph"' not in html
    assert "Prefill</dt><dd>" in html and "Multipliers used" not in html
    assert stored_data(page) == stored_data(model)


def test_the_memory_has_every_byte_of_the_program(model: Path) -> None:
    data = stored_data(model)
    facts = facts_of(data)
    assert facts.size_of("weights") + facts.size_of("tables") == data.figures.weights_bytes
    sizes = {item.name: item.size_bytes for item in facts.memory}
    assert sizes["keys and values"] == 3 * 2 * 2 * CONTEXT * (64 + 4)
    # 4 bits a weight, and the scale and the bias of each group of 32; parts are aligned
    assert 0 <= sizes["embedding and head"] - (WORDS * 256 // 2 + WORDS * 8 * 3) < 256
    assert sizes["rotary embedding"] == CONTEXT * 64 * 4
    assert sum(sizes.values()) == data.figures.weights_bytes + data.figures.peak_sram_bytes


def test_speeds_go_down_with_the_position(model: Path) -> None:
    facts = facts_of(stored_data(model))
    for kind in ("prefill", "decode"):
        points = [point for point in facts.speeds if point.kind == kind and point.way == CHOSEN]
        assert points[0].position == 0 and points[-1].position == CONTEXT - (ROWS if kind == "prefill" else 1)
        speeds = [point.tokens_per_second for point in points]
        assert speeds == sorted(speeds, reverse=True)


def test_a_core_of_counted_instructions_has_all_calls_in_its_phases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path / "core.pte", "imxrt700-cpu")
    assert main(["explain", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Prefill of 64 tokens" in text and "bytes of flash" in text and "DDR" not in text
    facts = facts_of(stored_data(path))
    for phase in facts.phases:
        assert [part.calls for part in phase.parts] == [1, 7, 3, 3, 3, 3, 3, 3, 1]
        assert all(part.place == "CPU" and part.npu_seconds is None and part.is_counted for part in phase.parts)
        assert math.fsum(part.seconds for part in phase.parts) == pytest.approx(phase.seconds)
        assert phase.bound_seconds < phase.low_seconds < phase.seconds < phase.high_seconds
    for kind in ("prefill", "decode"):
        speeds = [point.tokens_per_second for point in facts.speeds if (point.kind, point.way) == (kind, CHOSEN)]
        assert speeds == sorted(speeds, reverse=True)


def test_a_program_without_modelled_times_has_its_memory_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path / "other.pte", "cortex-m55")
    assert main(["explain", str(path)]) == 0
    text = capsys.readouterr().out
    assert "not modelled for a decoder on this chip" in text and "keys and values" in text and "tokens/s" not in text
