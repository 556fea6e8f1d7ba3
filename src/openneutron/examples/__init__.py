# SPDX-License-Identifier: BSD-3-Clause
"""Runnable examples: ``python -m openneutron.examples.aot_neutron_compile --help``."""

import openneutron.pytorch  # noqa: F401  (before torch and ExecuTorch, whose warnings on import it turns off)
