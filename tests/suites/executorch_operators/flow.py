# SPDX-License-Identifier: BSD-3-Clause
"""The flow that ExecuTorch's backend test suite runs: int8 quantization, our partitioner, the simulated NPU."""

from __future__ import annotations

from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators at the inputs and outputs)
from executorch.backends.test.harness import Tester
from executorch.backends.test.harness.stages import Quantize, StageType, ToEdgeTransformAndLower
from executorch.backends.test.suite import flow as suite_flow
from executorch.backends.test.suite.flow import TestFlow
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import ExportedProgram

from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from openneutron.pytorch.partition.delegation import Delegation
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.run import delegate

TARGET = "imxrt700"
BACKEND = "openneutron"

TESTERS: list[OpenNeutronTester] = []
"""Every tester made since the list was cleared, in order: the suite keeps no tester, and each knows its delegation."""


class Lower(ToEdgeTransformAndLower):
    """Lower with a partitioner of its own.

    Operators that were kept whole for the NPU, and that no kernel on the CPU computes, are decomposed in a second pass,
    as in ``openneutron.compile``.
    """

    def __init__(self) -> None:
        super().__init__(edge_compile_config=_compile_config())
        self.delegation: Delegation | None = None

    def run(self, artifact: ExportedProgram, inputs: Any = None, generate_etrecord: bool = False) -> None:
        partitioner = NeutronPartitioner(generate_neutron_compile_spec(TARGET), NeutronTargetSpec(TARGET))
        while True:
            self.edge_dialect_program = to_edge_transform_and_lower(
                artifact,
                compile_config=self.edge_compile_conf,
                partitioner=[partitioner],
                generate_etrecord=generate_etrecord,
            )
            if not partitioner.left_whole:
                break
            partitioner = partitioner.taking_apart(partitioner.left_whole)
        self.delegation = partitioner.delegations[-1]


def _compile_config() -> EdgeCompileConfig:
    return EdgeCompileConfig(_core_aten_ops_exception_list=list(core_aten_ops_exception_list), _check_ir_validity=False)


class OpenNeutronTester(Tester):
    """ExecuTorch's tester with our lowering stage."""

    def __init__(self, model: Any, example_inputs: Any) -> None:
        stages = {**Tester.default_stage_classes(), StageType.TO_EDGE_TRANSFORM_AND_LOWER: Lower}
        super().__init__(model, example_inputs, stages)
        delegate.load()
        TESTERS.append(self)

    @property
    def delegation(self) -> Delegation | None:
        """Return the placement of each operator, or None before the model is lowered."""
        stage = self.stages[StageType.TO_EDGE_TRANSFORM_AND_LOWER]
        return stage.delegation if isinstance(stage, Lower) else None


FLOW = TestFlow(
    name=f"openneutron_{TARGET}_int8",
    backend=BACKEND,
    tester_factory=OpenNeutronTester,
    quantize=True,
    quantize_stage_factory=lambda: Quantize(quantizer=NeutronQuantizer(NeutronTargetSpec(TARGET))),
)


def register() -> None:
    """Replace the suite's flows by this one.

    Call this before pytest loads the suite's conftest.py, which reads all flows when it is imported.
    """
    suite_flow.all_flows = lambda: {FLOW.name: FLOW}
