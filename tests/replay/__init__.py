# SPDX-License-Identifier: BSD-3-Clause
"""A record of many programs, which shows that a change of the sources' structure changes no byte of any program.

``python -m tests.replay`` compiles each case and prints the cases whose record differs from the file; ``--write`` writes
the file. ``--all`` adds the networks that go through PyTorch, whose records depend on the machine's floating-point
arithmetic: on a new machine, write them before a change and compare after it.
"""
