# SPDX-License-Identifier: BSD-3-Clause
"""The main job once, from training to the simulated NPU: ``openneutron demo`` prints what it returns."""
