# SPDX-License-Identifier: BSD-3-Clause
"""The place where scripts for ExecuTorch's NXP backend import the manager of passes."""

from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import NeutronAtenPassManager

__all__ = ["NeutronAtenPassManager"]
