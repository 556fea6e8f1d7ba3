# SPDX-License-Identifier: BSD-3-Clause
"""The folder of ExecuTorch's example network."""
