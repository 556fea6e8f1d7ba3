# SPDX-License-Identifier: BSD-3-Clause
"""Architectures from timm and transformers, with random weights: compiled, run on the simulator, and compared with float.

``python -m tests.suites.architectures`` runs all of them; see ``__main__``.
"""
