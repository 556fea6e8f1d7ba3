# SPDX-License-Identifier: BSD-3-Clause
"""A record of many programs, which shows that a change of the sources' structure changes no byte of any program.

``python -m tests.replay`` compiles each case and prints the cases whose record differs from the file; ``--write`` writes
the file. ``--all`` adds the networks that go through PyTorch, in two minutes. A record of theirs has the hash of a payload,
which depends on the machine's floating-point arithmetic, and that of its schedule, which does not. The tests compare the
networks' names, and the schedules of some. On a new machine, write the records before a change and compare after it.
"""
