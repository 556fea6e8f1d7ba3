# SPDX-License-Identifier: BSD-3-Clause
"""Examples that run in a checkout of this repository: ``python -m examples.aot_neutron_compile --help``."""

import openneutron.pytorch  # noqa: F401  (before torch and ExecuTorch, whose warnings on import it turns off)
