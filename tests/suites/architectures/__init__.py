# SPDX-License-Identifier: BSD-3-Clause
"""Architectures from timm and transformers, with random weights: compiled, run on the simulator, and compared with float.

``python -m tests.suites.architectures`` goes through all of them; see ``__main__``.
"""
