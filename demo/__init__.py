# SPDX-License-Identifier: BSD-3-Clause
"""The main job once, from training to the simulated NPU: ``make demo``."""
