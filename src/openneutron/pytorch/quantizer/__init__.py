# SPDX-License-Identifier: BSD-3-Clause
"""int8 quantization of ATen graphs for the NPU."""
