# SPDX-License-Identifier: BSD-3-Clause
"""Where scripts written for ExecuTorch's NXP backend look for ``calibrate_and_quantize``."""

from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize

__all__ = ["calibrate_and_quantize"]
