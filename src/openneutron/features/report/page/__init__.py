# SPDX-License-Identifier: BSD-3-Clause
"""A compile as one page that opens offline, and its pictures."""
