# SPDX-License-Identifier: BSD-3-Clause
"""ExecuTorch's operator suite (``executorch.backends.test.suite.operators``) through OpenNeutron."""
