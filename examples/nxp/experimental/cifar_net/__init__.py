# SPDX-License-Identifier: BSD-3-Clause
"""CifarNet, the network of ExecuTorch's example."""
