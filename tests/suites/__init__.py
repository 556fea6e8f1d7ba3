# SPDX-License-Identifier: BSD-3-Clause
"""Suites of third-party models and operators, from the packages that hold them."""
