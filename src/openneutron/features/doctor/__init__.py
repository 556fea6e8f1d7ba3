# SPDX-License-Identifier: BSD-3-Clause
"""Check the installation, and describe a model's file without loading it."""
