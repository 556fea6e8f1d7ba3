# SPDX-License-Identifier: BSD-3-Clause
"""Every network on every target: compiled, run on the simulator, compared byte by byte, and compiled within budgets.

``python -m tests.suites.targets`` runs all of them; see ``__main__``.
"""
