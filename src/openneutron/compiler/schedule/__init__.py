# SPDX-License-Identifier: BSD-3-Clause
"""Represent the steps of a program and their order, divide calls into parts, and model the time of a run."""
