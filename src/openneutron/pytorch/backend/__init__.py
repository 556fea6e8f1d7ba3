# SPDX-License-Identifier: BSD-3-Clause
"""The target and the user's options, under the names ExecuTorch's NXP backend gives them."""
