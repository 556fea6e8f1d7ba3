# SPDX-License-Identifier: BSD-3-Clause
"""Features beside compiling: one folder for each, with its command."""
