# SPDX-License-Identifier: BSD-3-Clause
"""The driver on the host: run a program with the same results as on the chip, bit for bit, and trace it."""

from openneutron.device.simulator.simulator import THREADS, CallTime, Moment, ProfileEvent, Simulator, Trace, shared_by

__all__ = ["THREADS", "CallTime", "Moment", "ProfileEvent", "Simulator", "Trace", "shared_by"]
