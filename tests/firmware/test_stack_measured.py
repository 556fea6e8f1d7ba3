# SPDX-License-Identifier: BSD-3-Clause
"""Stack that is measured on the emulated core stays below what the machine code says, and not far below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.ir import Graph
from openneutron.isa import decode
from scripts.firmware_build import Build, Library
from scripts.firmware_page import TARGET, autoencoder
from scripts.firmware_stack import call_graph
from scripts.published_networks import cifarnet
from tests.cortex_m33.cases import Case, Flag, run
from tests.cortex_m33.firmware import image, library
from tests.cortex_m33.models import random_inputs


@pytest.mark.parametrize("make", [cifarnet, autoencoder])
def test_measured_and_computed(make: Callable[[], Graph], libraries: Mapping[Build, Library]) -> None:
    """No shape takes the deepest way through every kernel, but each of these comes near it."""
    program = compile_graph(make(), targets.get(TARGET)).program
    (done,) = run(image(library()), [Case(program, random_inputs(program, 1), Flag.STACK)])
    graph = call_graph(libraries[Build("gcc", "-Os")])
    kernels = {operator.row.name for operator in decode(program).operators}
    called, checks = {f"{name}_run" for name in kernels}, {f"{name}_check" for name in kernels}
    prepare = graph.depth("neutronModelPrepare", checks=checks).bytes
    whole_run = graph.depth("neutronRunBlocking", called & graph.runs().keys()).bytes
    print(f"prepare: {done.prepare_stack} of {prepare}; run: {done.runs[0].stack} of {whole_run}")
    assert called <= graph.runs().keys() and checks <= graph.checks()
    assert 0.75 * prepare < done.prepare_stack <= prepare
    assert 0.75 * whole_run < done.runs[0].stack <= whole_run
