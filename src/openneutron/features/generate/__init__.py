# SPDX-License-Identifier: BSD-3-Clause
"""Continue a prompt with a compiled language model."""
