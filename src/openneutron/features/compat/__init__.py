# SPDX-License-Identifier: BSD-3-Clause
"""Python packages and programs that other software expects, implemented with OpenNeutron's compiler."""
