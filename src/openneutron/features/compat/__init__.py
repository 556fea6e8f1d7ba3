# SPDX-License-Identifier: BSD-3-Clause
"""The Python surfaces that other programs expect, on top of this project's compiler."""
