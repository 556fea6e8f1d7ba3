# SPDX-License-Identifier: BSD-3-Clause
"""``examples.aot_neutron_compile`` at the path that it has in ExecuTorch: ``python -m examples.nxp.aot_neutron_compile``."""

import sys

from examples.aot_neutron_compile import main

if __name__ == "__main__":
    sys.exit(main())
