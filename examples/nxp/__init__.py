# SPDX-License-Identifier: BSD-3-Clause
"""The commands of ExecuTorch's ``examples/nxp`` under their names and paths, with this project's compiler."""
