# SPDX-License-Identifier: BSD-3-Clause
"""A script written for ExecuTorch's NXP backend, with only its imports changed; names, keys and errors as it knows them."""

from __future__ import annotations

from pathlib import Path

import executorch.extension.pybindings.portable_lib
import executorch.kernels.quantized  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.runtime import Runtime
from hypothesis import given
from hypothesis import strategies as st

from openneutron import litert
from openneutron.device import pte
from openneutron.errors import InvalidOptionError, InvalidTargetError
from openneutron.isa import payload
from openneutron.options import EFFORTS, IO_PLACES, CompileOptions
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import (
    DelegateOptions,
    NeutronHWVersion,
    NeutronTargetSpec,
    decode_specs,
    encode_specs,
)
from openneutron.pytorch.edge_passes.neutron_edge_pass_manager import NeutronEdgePassManager
from openneutron.pytorch.edge_passes.remove_additional_quantize_dequantize_nodes_pass import (
    RemoveAdditionalQDQClustersPass,
)
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import (
    NeutronBackend,
    NeutronCompileSpecBuilder,
    core_aten_ops_exception_list,
    generate_neutron_compile_spec,
)
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.utils import calibrate_and_quantize
from openneutron.pytorch.run import delegate
from tests.pytorch.small_models import IMAGE, Around

SPEC = NeutronTargetSpec("imxrt700")
KEYS = [
    "output_format",
    "compile_flags",
    "target",
    "intermediates_dir",
    "operators_not_to_delegate",
    "use_neutron_for_format_conversion",
    "fetch_constants_to_sram",
    "dump_kernel_selection_code",
    "use_profiling",
]


def quantized() -> tuple[torch.fx.GraphModule, tuple[torch.Tensor, ...]]:
    torch.manual_seed(3)
    inputs = (torch.randn(IMAGE),)
    model = Around(lambda m, x: F.softmax(F.linear(F.relu(m.conv(x)).flatten(1), m.columns), 1)).eval()
    exported = torch.export.export(model, inputs, strict=True)
    return calibrate_and_quantize(exported, [inputs], NeutronQuantizer(SPEC)), inputs


@pytest.mark.parametrize("remove_io", [False, True])
def test_the_whole_flow(remove_io: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module, inputs = quantized()
    spec = generate_neutron_compile_spec(
        "imxrt700", intermediates_dir=str(tmp_path), dump_kernel_selection_code=True, use_profiling=True
    )
    partitioner = NeutronPartitioner(spec, SPEC, post_quantization_state_dict=module.state_dict())
    manager = to_edge_transform_and_lower(
        torch.export.export(module, inputs, strict=True),
        transform_passes=NeutronEdgePassManager(),
        partitioner=[partitioner],
        compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=core_aten_ops_exception_list),
    )
    if remove_io:
        manager = manager.transform([RemoveIOQuantOpsPass(edge_program_manager=manager)])
    manager = manager.transform(NeutronEdgePassManager([RemoveAdditionalQDQClustersPass()]))
    program = manager.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    (found,) = [item for item in pte.delegates(program.buffer) if item.backend == NeutronBackend.__name__]
    assert payload.parse(found.payload).arguments == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_kernel_selection_tag0.c",
        "tag0_neutron.et.tflite",
        "tag0_pure.et.tflite",
    ]
    assert [n.op for n in litert.read(tmp_path / "tag0_neutron.et.tflite").graph.nodes] == ["CUSTOM NeutronGraph"]
    delegate.load()
    loaded = Runtime.get().load_program(program.buffer)  # holds the bytes that the method reads
    method = loaded.load_method("forward")
    given = inputs[0]
    if remove_io:
        names = {name: manager._config_methods[f"input0_{name}"] for name in ("scale", "zp")}
        given = torch.clamp(torch.round(given / names["scale"]) + names["zp"], -128, 127).to(torch.int8)
    (output,) = method.execute([given])
    real = (output.float() + 128) / 256 if remove_io else output
    assert torch.allclose(real, module(*inputs), atol=2.5 / 256)


def test_the_target() -> None:
    assert (SPEC.get_name(), SPEC.is_subsystem(), SPEC.get_num_units()) == ("imxrt700", False, 1)
    assert (SPEC.get_num_pipes(), SPEC.get_num_macs(), SPEC.get_hw_version()) == (8, 8, NeutronHWVersion.N3)
    assert NeutronTargetSpec("imx95").is_subsystem()
    with pytest.raises(
        InvalidTargetError,
        match=r"^Target `x` is not a valid target\. Must be one of `\['imx943', 'imx95', 'imx952', 'imxrt700', 'mcxn54x', 'mcxn94x', "
        r"'cortex-a55', 'cortex-m33', 'cortex-m4', 'cortex-m55', 'cortex-m7', 'cortex-m85'\]`, or the path",
    ):
        NeutronTargetSpec("x")


def test_keys_of_the_compile_spec_stand_where_they_are_looked_for() -> None:
    spec = generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=["aten::relu", "conv"])
    assert [item.key for item in spec[:9]] == KEYS
    assert spec[4].value == b"aten_relu,conv"
    assert spec[3].value == b"None"
    assert spec[5].value == b"True"
    assert NeutronCompileSpecBuilder().build() == []


def test_a_builder_takes_options_once() -> None:
    builder = NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700")
    with pytest.raises(AssertionError):
        builder.neutron_compile_spec("imxrt700")


_NAMES = st.text(st.characters(categories=("L", "N"), include_characters="_"), min_size=1, max_size=12)
_EVERY = {"prefetch_constants": st.booleans(), "profile": st.booleans()}
_OPTIONS = st.builds(
    CompileOptions,
    sram_budget=st.none() | st.integers(1, 1 << 30),
    io_place=st.none() | st.sampled_from(IO_PLACES),
    effort=st.sampled_from(EFFORTS),
    check=st.booleans(),
    **_EVERY,
) | st.builds(
    CompileOptions,
    converter=st.just("eiq"),
    converter_flags=st.lists(_NAMES | st.just("--a='b c'"), max_size=3).map(tuple),
    **_EVERY,
)


@given(
    st.builds(
        DelegateOptions,
        _OPTIONS,
        intermediates_dir=st.none() | st.just("/some/where"),
        operators_not_to_delegate=st.lists(_NAMES, max_size=3).map(tuple),
        use_neutron_for_format_conversion=st.booleans(),
        dump_kernel_selection_code=st.booleans(),
        name=_NAMES,
    )
)
def test_compile_specs_carry_all_options(options: DelegateOptions) -> None:
    specs = encode_specs(options)
    assert [item.key for item in specs] == [*KEYS, "openneutron"]
    assert decode_specs(specs) == options


def test_compile_specs_of_nxps_backend_are_read() -> None:
    specs = generate_neutron_compile_spec(
        "imxrt700", extra_flags="--sram-budget=64", fetch_constants_to_sram=True, use_profiling=True
    )
    values = {"compile_flags": b"--sram-budget=64"}
    theirs = [CompileSpec(item.key, values.get(item.key, item.value)) for item in specs[:9]]
    assert decode_specs(theirs) == decode_specs(specs)
    assert decode_specs(specs).options == CompileOptions(
        sram_budget=65536, io_place="caller", prefetch_constants=True, profile=True
    )


def test_two_sources_of_an_option_agree() -> None:
    options = CompileOptions(sram_budget=2048)
    with pytest.raises(InvalidOptionError, match=r"^extra_flags: '--sram-budget' sets 1024, but sram_budget is 2048"):
        generate_neutron_compile_spec("imxrt700", extra_flags="--sram-budget=1", options=options)
    specs = generate_neutron_compile_spec("imxrt700")
    with pytest.raises(InvalidOptionError) as caught:
        decode_specs([*specs, CompileSpec("use_profiling", b"True")])
    assert str(caught.value) == (
        "compile spec: use_profiling is 'True', but 'False' in the options beside it. Make the whole list with "
        "generate_neutron_compile_spec."
    )


def test_damaged_compile_specs() -> None:
    with pytest.raises(RuntimeError, match=r"^output format is required$"):
        decode_specs([])
    with pytest.raises(RuntimeError, match=r"^Unknown format onnx$"):
        decode_specs([CompileSpec("output_format", b"onnx")])
    with pytest.raises(InvalidOptionError, match=r"^compile spec: use_profiling is 'maybe'; it is True or False\.$"):
        decode_specs([*generate_neutron_compile_spec("imxrt700")[:8], CompileSpec("use_profiling", b"maybe")])


def test_a_folder_for_intermediates_that_is_none() -> None:
    module, inputs = quantized()
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700", intermediates_dir="/no/such"), SPEC)
    with pytest.raises(ValueError, match=r"^intermediates_dir is not a directory path\.$"):
        to_edge_transform_and_lower(torch.export.export(module, inputs), partitioner=[partitioner])


def test_data_is_not_needed_to_partition() -> None:
    module, inputs = quantized()
    with_data = NeutronPartitioner(generate_neutron_compile_spec("imxrt700"), SPEC, None, module.state_dict())
    without = NeutronPartitioner(generate_neutron_compile_spec("imxrt700"), SPEC)
    for partitioner in (with_data, without):
        to_edge_transform_and_lower(torch.export.export(module, inputs), partitioner=[partitioner])
    assert with_data.delegations == without.delegations


def test_partitions_that_move_nothing_can_be_allowed() -> None:
    torch.manual_seed(3)
    inputs = (torch.randn(IMAGE),)
    module = calibrate_and_quantize(
        torch.export.export(Around(lambda m, x: x.flatten(1)).eval(), inputs), [inputs], NeutronQuantizer(SPEC)
    )
    counts = []
    for allowed in (False, True):
        partitioner = NeutronPartitioner(
            generate_neutron_compile_spec("imxrt700"), SPEC, CustomDelegationOptions(allow_no_op_partitions=allowed)
        )
        to_edge_transform_and_lower(torch.export.export(module, inputs), partitioner=[partitioner])
        counts.append(partitioner.delegations[-1].partitions)
    assert counts == [0, 1]


def test_a_shared_dequantize_node_holds_nothing_up() -> None:
    module, inputs = quantized()
    exported = torch.export.export(module, inputs)
    graph = exported.graph
    first = next(
        node for node in graph.nodes if node.name == "dequantize_per_tensor" or "dequantize_per_tensor" in node.name
    )
    with graph.inserting_after(first):
        gelu = graph.call_function(torch.ops.aten.gelu.default, (first,))
    gelu.meta = dict(first.meta)
    output = graph.output_node()
    assert len(first.users) == 2
    del output
    # With a say in what is kept whole, nothing is delegated before the decomposition.
    spec = generate_neutron_compile_spec("imxrt700")
    partitioner = NeutronPartitioner(spec, SPEC, check_op_support=lambda node: True)
    changed = partitioner.transform_for_pre_decomposition(exported)
    twins = [
        node for node in changed.graph.nodes if node.target == first.target and node.args[0].name == first.args[0].name
    ]
    assert [len(node.users) for node in twins] == [1, 1]
    assert len(first.users) == 2, "the caller's program is the caller's"


def test_histories_stay_with_the_callers_program() -> None:
    """torch.export writes down which nodes each one came from; each of ExecuTorch's passes would copy that."""

    def histories(program: torch.export.ExportedProgram) -> dict[str, object]:
        return {node.name: node.meta["from_node"] for node in program.graph.nodes if "from_node" in node.meta}

    module, inputs = quantized()
    exported = torch.export.export(module, inputs)
    before = histories(exported)
    assert len(before) > 5
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imxrt700"), SPEC)
    assert not histories(partitioner.transform_for_pre_decomposition(exported))
    assert histories(exported) == before
