# SPDX-License-Identifier: BSD-3-Clause
"""The place where scripts for ExecuTorch's NXP backend import ``calibrate_and_quantize``."""

from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize

__all__ = ["calibrate_and_quantize"]
