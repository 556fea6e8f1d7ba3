# SPDX-License-Identifier: BSD-3-Clause
"""Suites of models and operators that others wrote, from the packages that hold them."""
