# SPDX-License-Identifier: BSD-3-Clause
"""Export of compiled models as folders from which firmware is built."""
