# SPDX-License-Identifier: BSD-3-Clause
"""List what compiled files contain: their programs and their kernels."""
