# SPDX-License-Identifier: BSD-3-Clause
"""Model the cycles of kernel calls, copies and operators on the host."""
