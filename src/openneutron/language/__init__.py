# SPDX-License-Identifier: BSD-3-Clause
"""Language models: a decoder as quantized weights, and its program. No PyTorch is needed here."""
