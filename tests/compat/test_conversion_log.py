# SPDX-License-Identifier: BSD-3-Clause
"""The log that the stand-in for NXP's SDK prints, read by ExecuTorch's NXP backend."""

from __future__ import annotations

import pytest
from executorch.backends.nxp.backend.neutron_map import NeutronMap

from openneutron import litert
from openneutron.features.compat.eiq_neutron_sdk import neutron_converter
from openneutron.features.compat.eiq_neutron_sdk.neutron_converter import CompilationContext
from openneutron.isa import decode
from openneutron.isa.microcode import calls, facts_of
from openneutron.litert.neutron_graph import find
from scripts.published_networks import cifarnet


def converted(capfd: pytest.CaptureFixture[str], **options: object) -> tuple[bytes, str]:
    context = CompilationContext(neutron_converter.getNeutronTarget("imxrt700"))
    for name, value in options.items():
        setattr(context.compilationOpts, name, value)
    data = neutron_converter.convertModel(litert.write(cifarnet()), context)
    assert isinstance(data, bytes)
    return data, capfd.readouterr().out


CONSOLE = {"useProfiling": True, "dumpAfterImport": "console", "dumpAfterGenerate": "console", "verbose": True}


def test_the_backends_map_has_each_kernel_call(capfd: pytest.CaptureFixture[str]) -> None:
    """The first convolution is three calls, for its edges; every other operator is one. The last entry is no call."""
    data, log = converted(capfd, **CONSOLE)
    operators = [node.op for node in cifarnet().nodes]
    found = NeutronMap(log, {100 + place: (place,) for place in range(len(operators))}).get_neutron_to_edge_map()
    (node,) = find(litert.read(data).model)
    made = [step.operator for step in calls(decode(node.program))]
    handles = {operator: 100 + operators.index(operator) for operator in operators}
    assert found[0] == found[1] == found[2] == (handles["conv_2d"],)
    assert len(found) == len(made) + 1 and found[len(made)] == ()
    assert {handle for entry in found.values() for handle in entry} == set(range(100, 100 + len(operators)))


def test_the_events_of_such_a_program_have_numbers(capfd: pytest.CaptureFixture[str]) -> None:
    data, _ = converted(capfd, **CONSOLE)
    (node,) = find(litert.read(data).model)
    node.program.verify()
    assert node.program.header["profile_size"] > 0 and facts_of(node.program) == ()


@pytest.mark.parametrize("options", [{}, {"useProfiling": True}, {**CONSOLE, "useProfiling": False}])
def test_nothing_is_printed_without_these_options(
    options: dict[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    assert converted(capfd, **options)[1] == ""
