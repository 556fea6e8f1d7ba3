# SPDX-License-Identifier: BSD-3-Clause
"""What runs programs, and their files on the machine: simulator, converters, `.pte`, cache, samples."""
