# SPDX-License-Identifier: BSD-3-Clause
"""The model of i.MX 95's NPU behind the calls of NXP's driver: a library that computes jobs as their header has them."""

from openneutron.device.device_model.device_model import LIBRARY, Buffer, Counts, DeviceModel

__all__ = ["LIBRARY", "Buffer", "Counts", "DeviceModel"]
