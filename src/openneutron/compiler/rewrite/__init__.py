# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite lists of kernel calls: the passes between selection and the search for a schedule."""
