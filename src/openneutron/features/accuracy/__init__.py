# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy that each layer of a quantized model costs, and the search for measures against it."""
