# SPDX-License-Identifier: BSD-3-Clause
"""The target and the user's options, under the names that ExecuTorch's NXP backend has for them."""
