# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a quantized module's constants that bring each layer's result nearer to the float module's, on samples."""
