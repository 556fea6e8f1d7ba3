# SPDX-License-Identifier: BSD-3-Clause
"""``use_profiling`` of the compile spec: from there to ExecuTorch's inspector."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from executorch.devtools import Inspector, parse_etrecord
from executorch.devtools.inspector import TimeScale
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.runtime import Runtime

from openneutron.device import pte
from openneutron.device.simulator import Simulator
from openneutron.features.profile import delegate_time_scale_converter, parse_delegate_metadata
from openneutron.isa import decode, payload
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.utils import calibrate_and_quantize
from openneutron.pytorch.run import delegate
from openneutron.pytorch.run.runner import Runner
from tests.pytorch.small_models import IMAGE, Around, without_lines

SPEC = NeutronTargetSpec("imxrt700")


def lowered(profiling: bool, etrecord: bool = False) -> tuple[EdgeProgramManager, tuple[torch.Tensor]]:
    """Return a small quantized network with its delegate call, and its input."""
    torch.manual_seed(3)
    inputs = (torch.randn(IMAGE),)
    model = Around(lambda m, x: F.max_pool2d(F.relu(m.conv(x)), 2)).eval()
    module = calibrate_and_quantize(torch.export.export(model, inputs), [inputs], NeutronQuantizer(SPEC))
    spec = generate_neutron_compile_spec("imxrt700", use_profiling=profiling)
    edge = to_edge_transform_and_lower(
        torch.export.export(module, inputs), partitioner=[NeutronPartitioner(spec, SPEC)], generate_etrecord=etrecord
    )
    return edge, inputs


@pytest.mark.parametrize("profiling", [True, False])
def test_kernel_calls_reach_the_inspector(profiling: bool, tmp_path: Path) -> None:
    edge, inputs = lowered(profiling)
    buffer = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False)).buffer
    (found,) = pte.delegates(buffer)
    with Simulator(payload.parse(found.payload).program) as simulator:
        given = [torch.zeros(binding["size"], dtype=torch.int8).numpy() for binding in simulator.microcode.inputs]
        events = simulator.profile(given)
        calls = len(simulator.microcode.operators)
    assert calls > 1 and len(events) == (calls if profiling else 0)
    delegate.load()
    program = Runtime.get().load_program(bytes(buffer), enable_etdump=True)
    program.load_method("forward").execute(inputs)
    program.write_etdump_result_to_file(str(tmp_path / "etdump"), str(tmp_path / "debug"))
    inspector = Inspector(
        str(tmp_path / "etdump"), source_time_scale=TimeScale.CYCLES, target_time_scale=TimeScale.CYCLES
    )
    logged = [event for block in inspector.event_blocks for event in block.events if event.is_delegated_op]
    assert [event.perf_data.raw for event in logged] == [[e.stop_cycles - e.start_cycles] for e in events]


def test_the_inspector_names_each_kernel_call(tmp_path: Path) -> None:
    """Each event has its module and source line, and the Edge program's operators that it computes."""
    edge, inputs = lowered(True, etrecord=True)
    program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    program.get_etrecord().save(str(tmp_path / "etrecord.bin"))
    runner = Runner("net.pte", bytes(program.buffer), traced=True)
    runner.run(inputs)
    inspector = Inspector(
        etdump_data=runner.etdump(),
        etrecord=str(tmp_path / "etrecord.bin"),
        delegate_metadata_parser=parse_delegate_metadata,
        delegate_time_scale_converter=delegate_time_scale_converter(),
    )
    logged = [event for block in inspector.event_blocks for event in block.events if event.is_delegated_op]
    stated = [event.delegate_debug_metadatas for event in logged]
    found = [
        (without_lines(event.name), data["kernel"], data["module"]) for event, data in zip(logged, stated, strict=True)
    ]
    assert found == [
        ("0 inputs_0", "copy_s8", ""),
        ("1 conv", "conv_2d_s8", "conv"),
        ("2 max_pool2d (small_models.py)", "max_pool_2d_s8", ""),
        ("3 max_pool2d (small_models.py)", "copy_s8", ""),
    ]
    assert [event.op_types for event in logged[1:]] == [
        ["aten.convolution.default", "aten.relu.default"],
        *[["aten.max_pool2d_with_indices.default"]] * 2,
    ]
    modules = [list(event.module_hierarchy["aten_convolution_default_"].values())[-1][0] for event in logged[1:2]]
    assert [module.rpartition(".")[2] for module in modules] == ["conv"]
    assert {data["source"].partition(":")[0] for data in stated} == {"small_models.py"}
    (delegate_call,) = pte.payloads(bytes(program.buffer))
    cycles = decode(delegate_call[1].program).cycles
    assert sum(data["npu_cycles"] for data in stated) == cycles
    assert sum(event.perf_data.raw[0] for event in logged) == pytest.approx(cycles / 324e3)
    assert all(data["host_us"] > 0 for data in stated)


def test_the_debug_handles_have_numbers_and_names(tmp_path: Path) -> None:
    """NXP's delegate logs the numbers, and one event more at the end; this project's delegate logs the names."""
    edge, _ = lowered(True)
    (part,) = (child for child in edge.exported_program().graph_module.children() if hasattr(child, "meta"))
    handles = part.meta["debug_handle_map"]
    numbers, names = list(handles)[:5], list(handles)[5:]
    assert numbers == [0, 1, 2, 3, 4] and handles[4] == ()
    assert [name.split(" ")[0] for name in names] == ["0", "1", "2", "3"]
    assert [handles[name] for name in names] == [handles[number] for number in numbers[:4]]
    assert all(handles[number] for number in numbers[:4])


def test_an_etrecord_with_profiling_names_each_delegated_operator(tmp_path: Path) -> None:
    """The delegate call has the debug handles of its operators, and each handle is a node of the Edge program with its
    module and source line."""
    edge, _ = lowered(True, etrecord=True)
    edge.to_executorch().get_etrecord().save(str(tmp_path / "etrecord.bin"))
    record = parse_etrecord(str(tmp_path / "etrecord.bin"))
    handles = max(
        (item for item in record._debug_handle_map["forward"].values() if isinstance(item, list)), key=len, default=[]
    )
    nodes = {node.meta.get("debug_handle"): node for node in record.edge_dialect_program.graph.nodes}
    named = [nodes[handle] for handle in handles if "convolution" in str(nodes[handle].target)]
    assert handles and set(handles) <= set(nodes)
    assert [list(node.meta["nn_module_stack"].values())[-1][0].rpartition(".")[2] for node in named] == ["conv"]
    assert "in forward" in named[0].meta["stack_trace"]
