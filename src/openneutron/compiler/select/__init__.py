# SPDX-License-Identifier: BSD-3-Clause
"""Select the kernel calls, on views of tensors, that compute a legalized graph."""
