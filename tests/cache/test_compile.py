# SPDX-License-Identifier: BSD-3-Clause
"""Compiles with a cache: the same results, and only as much work as the change asks for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import openneutron
from openneutron import CompileOptions, litert
from openneutron.cli import main
from openneutron.compiler import compile_graph
from openneutron.compiler.search.pareto import Point
from openneutron.device import cache
from openneutron.device.cache import key_of, read_compiled, written_compiled
from openneutron.errors import InvalidOptionError
from openneutron.ir import Graph
from openneutron.targets import get
from scripts.published_networks import cifarnet
from tests.support.litert_files import mixed_file

TARGET = get("imxrt700")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(mixed_file())
    return path


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that were compiled, and not taken from a cache."""
    names: list[str] = []
    inner = cache.compile_prepared

    def counted(graph: Any, *arguments: Any) -> Any:
        names.append(graph.graph.name)
        return inner(graph, *arguments)

    monkeypatch.setattr(cache, "compile_prepared", counted)
    return names


def test_an_identical_call_compiles_nothing(model: Path, tmp_path: Path, compiles: list[str]) -> None:
    plain = openneutron.compile(model)
    first = openneutron.compile(model, cache=tmp_path / "cache")
    assert len(compiles) == 4
    again = openneutron.compile(model, cache=tmp_path / "cache")
    assert len(compiles) == 4
    assert plain.buffer == first.buffer == again.buffer
    assert plain.report == first.report == again.report
    assert plain.summary() == again.summary()
    openneutron.compile(model, cache=tmp_path / "cache", options=CompileOptions(sram_budget=100_000))
    assert len(compiles) == 6


def test_a_file_is_compiled_again_with_other_options(model: Path) -> None:
    first = openneutron.compile(model)
    for changes in ({"io_place": "caller"}, {"sram_budget": 4096}, {"prefetch_constants": True, "effort": "high"}):
        made = first.recompile(**changes)
        fresh = openneutron.compile(model, options=CompileOptions(**changes))
        assert (made.buffer, made.report) == (fresh.buffer, fresh.report), changes
    changes = {"target": "imx95", "converter": "driver"}
    assert first.can_recompile(CompileOptions(**changes))
    assert first.recompile(**changes).buffer == openneutron.compile(model, options=CompileOptions(**changes)).buffer
    assert not first.can_recompile(CompileOptions(converter="eiq"))
    with pytest.raises(InvalidOptionError) as caught:
        first.recompile(converter="eiq")
    assert str(caught.value) == (
        "converter: 'net.tflite' is partitioned for 'open', and 'eiq' takes other operators. Compile the model again."
    )


def test_a_damaged_entry_is_made_again(model: Path, tmp_path: Path, compiles: list[str]) -> None:
    first = openneutron.compile(model, cache=tmp_path / "cache")
    one, *_ = sorted((tmp_path / "cache").iterdir())
    whole = one.read_bytes()
    one.write_bytes(whole[:-1])
    assert openneutron.compile(model, cache=tmp_path / "cache").buffer == first.buffer
    assert len(compiles) == 3
    assert one.read_bytes() == whole


def test_a_cache_that_is_a_file(model: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(model, cache=model)
    assert str(caught.value) == f"cache: '{model}' can't be used as a folder: File exists."


def test_a_program_survives_its_entry() -> None:
    graph = cifarnet()
    made = compile_graph(graph, TARGET, CompileOptions(check=True, prefetch_constants=True, effort="high"))
    found = read_compiled(written_compiled(made), graph)
    assert found is not None
    assert (found.program, found.report, found.graph) == (made.program, made.report, graph)
    assert written_compiled(found) == written_compiled(made)


def test_an_entry_of_another_form_is_none() -> None:
    graph = cifarnet()
    data = written_compiled(compile_graph(graph, TARGET))
    size = int.from_bytes(data[:8], "little")
    facts = json.loads(data[8 : 8 + size])
    for wrong in ([], {}, {**facts, "sizes": [0, 0, 0]}, {**facts, "report": {}}, {**facts, "sizes": "three"}):
        header = json.dumps(wrong).encode()
        assert read_compiled(len(header).to_bytes(8, "little") + header + data[8 + size :], graph) is None
    assert read_compiled(b"", graph) is None
    assert read_compiled(data[:-16], graph) is None


def changed(graph: Graph, **changes: Any) -> Graph:
    return Graph(**{name: changes.get(name, getattr(graph, name)) for name in Graph.__dataclass_fields__})


def test_the_key_has_all_that_a_program_depends_on() -> None:
    graph, options = cifarnet(), CompileOptions()
    key = key_of(graph, TARGET, options)
    name = next(name for name, tensor in graph.tensors.items() if tensor.data is not None and tensor.data.size)
    tensor = graph.tensors[name]
    data = tensor.data.copy()
    data.reshape(-1).view(np.uint8)[-1] ^= 1
    other = type(tensor)(name, tensor.shape, tensor.dtype, tensor.quant, data)
    node = next(node for node in graph.nodes if "stride_h" in node.attrs or node.attrs)
    first, value = next(iter(node.attrs.items()))
    nodes = tuple(each.with_attrs(**{first: (value, 1)}) if each is node else each for each in graph.nodes)
    keys = [
        key_of(changed(graph, tensors={**graph.tensors, name: other}), TARGET, options),
        key_of(changed(graph, nodes=nodes), TARGET, options),
        key_of(changed(graph, outputs=graph.inputs), TARGET, options),
        key_of(graph, TARGET.with_sram(TARGET.sram.value + 1), options),
        *(key_of(graph, TARGET, CompileOptions(**{option: value})) for option, value in OTHERS.items()),
    ]
    assert len({key, *keys}) == 1 + len(keys)
    assert key_of(changed(graph, name="another"), TARGET, options) == key
    assert key_of(changed(graph, tensors=dict(reversed(graph.tensors.items()))), TARGET, options) == key


OTHERS: dict[str, Any] = {
    "sram_budget": 100_000,
    "io_place": "caller",
    "prefetch_constants": True,
    "host_calls": False,
    "effort": "high",
    "check": False,
    "profile": True,
}


COMMAND = "import sys; from openneutron.cli import main; sys.exit(main(sys.argv[1:]))"


def test_the_command_keeps_a_cache_and_two_may_use_it_at_once(tmp_path: Path) -> None:
    path, cache = tmp_path / "net.tflite", tmp_path / "cache"
    path.write_bytes(litert.write(cifarnet()))
    results = [tmp_path / f"{name}.tflite" for name in ("one", "two", "plain")]
    options = ["-q", "--sram-budget", "30"]
    commands = [
        [sys.executable, "-c", COMMAND, "compile", str(path), "-o", str(result), *options, "--cache", str(cache)]
        for result in results[:2]
    ]
    both = [subprocess.Popen(command) for command in commands]
    assert [process.wait() for process in both] == [0, 0]
    assert len([*cache.iterdir()]) == 1
    assert main(["compile", str(path), "-o", str(results[2]), *options]) == 0
    assert len({result.read_bytes() for result in results}) == 1


def test_the_command_refuses_a_file_as_cache(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "-q", "-o", str(tmp_path / "out.tflite"), "--cache", str(model)]) == 2
    assert capsys.readouterr().err == f"error: cache: '{model}' can't be used as a folder: File exists.\n"


def test_pareto_searches_a_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, searched = tmp_path / "net.tflite", []
    path.write_bytes(litert.write(cifarnet()))
    inner = cache.pareto

    def counted(graph: Graph, *others: Any) -> Any:
        searched.append(graph.name)
        return inner(graph, *others)

    monkeypatch.setattr(cache, "pareto", counted)
    command, cached = ["pareto", str(path), "--json"], ["--cache", str(tmp_path / "cache")]
    texts = []
    for arguments in (command, [*command, *cached], [*command, *cached], [*command, *cached, "--effort", "high"]):
        assert main(arguments) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] == texts[2]
    assert len(searched) == 3


def test_points_survive_their_entry() -> None:
    points = (Point(1024, 50), Point(2048, 40))
    assert cache.read_front(cache.written_front(points)) == points
    for wrong in (b"", b"[[1]]", b"[1]", b"{}}"):
        assert cache.read_front(wrong) is None
