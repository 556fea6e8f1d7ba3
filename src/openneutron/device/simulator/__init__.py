# SPDX-License-Identifier: BSD-3-Clause
"""The driver on the host: runs a Program bit for bit as the chip's kernels would, and traces it."""

from openneutron.device.simulator.simulator import CallTime, Moment, ProfileEvent, Simulator, Trace

__all__ = ["CallTime", "Moment", "ProfileEvent", "Simulator", "Trace"]
