# SPDX-License-Identifier: BSD-3-Clause
"""Train a text decoder on Python's documentation strings, compile it, and generate text on the simulated NPU."""
