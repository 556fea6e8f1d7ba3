# SPDX-License-Identifier: BSD-3-Clause
"""Public names have docstrings with an example that runs; functions document arguments, results and errors."""

from __future__ import annotations

import doctest
import importlib
import inspect
from operator import attrgetter

import pytest

import openneutron
import openneutron.pytorch
from openneutron import options
from openneutron.options import flags

NAMES = [name for name in openneutron.__all__ if name != "__version__"]
NAMES += [f"pytorch.{name}" for name in openneutron.pytorch.__all__]
SECTIONS = ("Args:", "Returns:", "Raises:")


def run(test: doctest.DocTest) -> None:
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name: str) -> None:
    try:
        found = attrgetter(name)(openneutron)
    except ModuleNotFoundError as error:
        pytest.skip(f"it takes {error.name}")
    tests = [test for test in doctest.DocTestFinder().find(found, name) if test.examples]
    own = [example for test in tests if test.name == name for example in test.examples]
    assert any(not example.options.get(doctest.SKIP) for example in own), f"{name} has no example that runs"
    for test in tests:
        run(test)


@pytest.mark.parametrize("module", [flags, options])
def test_the_examples_of_the_options_run(module: object) -> None:
    for test in doctest.DocTestFinder().find(module):
        run(test)


@pytest.mark.parametrize("name", NAMES)
def test_public_functions_document_arguments_results_and_errors(name: str) -> None:
    try:
        found = attrgetter(name)(openneutron)
    except ModuleNotFoundError as error:
        pytest.skip(f"it takes {error.name}")
    if not inspect.isfunction(found):
        return
    text = inspect.getdoc(found) or ""
    positions = [text.find(section) for section in SECTIONS]
    assert -1 not in positions and positions == sorted(positions), name
    for parameter in inspect.signature(found).parameters:
        assert f"    {parameter}: " in text, f"{name}: {parameter}"


RESULTS = (
    ("openneutron.api.litert", "CompiledLiteRTModel"),
    ("openneutron.api.load", "LoadedFile"),
    ("openneutron.api.pytorch", "CompiledModel"),
    ("openneutron.features.export.bundle", "Bundle"),
    ("openneutron.features.report", "Summary"),
)
"""The classes of the objects that public functions return."""


@pytest.mark.parametrize(("module", "name"), RESULTS)
def test_public_methods_of_results_document_arguments_and_results(module: str, name: str) -> None:
    if module == "openneutron.api.pytorch":
        pytest.importorskip("torch")
    found = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(found)
    for method, value in vars(found).items():
        if method.startswith("_") or not inspect.isfunction(value):
            continue
        text = inspect.getdoc(value) or ""
        parameters = [*inspect.signature(value).parameters][1:]
        assert text.startswith(("Return ", "Write ", "Run ", "Set ")), f"{name}.{method}"
        for parameter in parameters:
            assert f"{parameter}: " in text or f"``{parameter}``" in text, f"{name}.{method}: {parameter}"
