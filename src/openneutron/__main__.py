# SPDX-License-Identifier: BSD-3-Clause
"""``python -m openneutron`` is the command ``openneutron``."""

import sys

from openneutron.cli import main

if __name__ == "__main__":
    sys.exit(main())
