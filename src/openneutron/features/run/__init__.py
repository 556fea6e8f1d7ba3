# SPDX-License-Identifier: BSD-3-Clause
"""Run compiled files on the simulated NPU."""
