# SPDX-License-Identifier: BSD-3-Clause
"""Train, compile and run a small network once: ``openneutron demo`` prints the outcome."""
