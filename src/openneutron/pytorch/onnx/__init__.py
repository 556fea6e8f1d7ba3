# SPDX-License-Identifier: BSD-3-Clause
"""ONNX models as programs of PyTorch: ``read`` checks a file, ``graph`` computes shapes, ``operators`` has the converters."""
