# SPDX-License-Identifier: BSD-3-Clause
"""The PT2E example of ExecuTorch's documentation of its NXP backend, and the optional arguments of its classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from torchao.quantization.pt2e import qat_utils
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from openneutron import targets
from openneutron.device import pte
from openneutron.errors import InvalidOptionError
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.run.runner import Runner


def small_network() -> torch.nn.Module:
    """The operators of an inverted residual, in place of the documentation's MobileNetV2."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU6(),
        torch.nn.Conv2d(8, 8, 3, groups=8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(8, 4),
    ).eval()


SAMPLE_INPUTS = (torch.linspace(-2, 2, 3 * 16 * 16).reshape(1, 3, 16, 16),)


@pytest.fixture
def _patterns_of_conv2d(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torchao look for the patterns of the network's convolutions alone. It traces those of the three other kinds in
    20 seconds, to find none."""
    for name in ("_fuse_conv_bn_qat_helper", "_fold_conv_bn_qat_helper"):
        inner = getattr(qat_utils, name)

        def of_conv2d(module: Any, kind: Any, *others: Any, inner: Any = inner, **given: Any) -> Any:
            return inner(module, kind, *others, **given) if kind is torch.nn.functional.conv2d else module

        monkeypatch.setattr(qat_utils, name, of_conv2d)


@pytest.mark.usefixtures("_patterns_of_conv2d")
@pytest.mark.parametrize("prepare", [prepare_pt2e, prepare_qat_pt2e])
def test_the_documented_calls_with_bare_objects_delegate_the_whole_model(prepare: Any) -> None:
    quantizer = NeutronQuantizer() if prepare is prepare_pt2e else NeutronQuantizer(is_qat=True)
    training_ep = torch.export.export(small_network(), SAMPLE_INPUTS).module()
    prepared_model = prepare(training_ep, quantizer)
    for cal_sample in [SAMPLE_INPUTS[0]]:
        prepared_model(cal_sample)
    quantized_model = convert_pt2e(prepared_model)
    partitioner = NeutronPartitioner()
    et_program = to_edge_transform_and_lower(
        torch.export.export(quantized_model, SAMPLE_INPUTS),
        partitioner=[partitioner],
    ).to_executorch()
    assert partitioner.delegations[-1].on_cpu == ()
    assert len(list(pte.delegates(et_program.buffer))) == 1
    (output,) = Runner("documented", et_program.buffer).run(SAMPLE_INPUTS)
    assert torch.allclose(output, quantized_model(*SAMPLE_INPUTS), atol=0.02)


SPEC = NeutronTargetSpec(target="imxrt700")
GIVEN: dict[str, Any] = {
    "compile_spec": generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=["aten::relu"]),
    "neutron_target_spec": SPEC,
    "custom_delegation_options": CustomDelegationOptions(allow_no_op_partitions=True),
    "post_quantization_state_dict": {},
    "preserve_ops": [torch.ops.aten.prelu.default],
    "check_op_support": bool,
}


@pytest.mark.parametrize("names", [(), *((name,) for name in GIVEN), tuple(GIVEN)], ids="-".join)
def test_a_partitioner_takes_any_of_its_arguments(names: tuple[str, ...]) -> None:
    partitioner = NeutronPartitioner(**{name: GIVEN[name] for name in names})
    assert partitioner.neutron_target_spec.get_name() == targets.DEFAULT
    bare = NeutronPartitioner()
    for name in ("custom_delegation_options", "post_quantization_state_dict", "check_op_support"):
        assert getattr(partitioner, name) == (GIVEN[name] if name in names else getattr(bare, name))
    assert partitioner.preserve_ops == (tuple(GIVEN["preserve_ops"]) if "preserve_ops" in names else ())
    wanted = GIVEN["compile_spec"] if "compile_spec" in names else generate_neutron_compile_spec("imxrt700")
    assert partitioner.delegation_spec.compile_specs == wanted


def test_a_quantizer_takes_any_of_its_arguments() -> None:
    assert NeutronQuantizer().neutron_target_spec.get_name() == targets.DEFAULT
    assert NeutronQuantizer(is_qat=True).is_qat
    assert NeutronQuantizer(neutron_target_spec=SPEC).neutron_target_spec is SPEC


def test_two_targets_are_an_error_that_names_both() -> None:
    other = generate_neutron_compile_spec("mcxn94x")
    with pytest.raises(InvalidOptionError) as caught:
        NeutronPartitioner(other, SPEC)
    assert str(caught.value) == (
        "NeutronPartitioner: the compile spec is for 'mcxn94x', the target spec for 'imxrt700'. "
        "Make both for the same target."
    )
