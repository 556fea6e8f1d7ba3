# SPDX-License-Identifier: BSD-3-Clause
"""Schedules with addresses to programs, and the check of a program."""
