# SPDX-License-Identifier: BSD-3-Clause
"""Write a program that tells what only a board can about matrix products on its NPU, and read what it saw."""
