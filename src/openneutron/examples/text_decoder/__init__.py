# SPDX-License-Identifier: BSD-3-Clause
"""Train a decoder of text on Python's documentation strings, compile it, and have the simulated NPU write on."""
