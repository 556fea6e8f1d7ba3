# SPDX-License-Identifier: BSD-3-Clause
"""``python -m openneutron`` is the command ``openneutron``."""

import os
import sys

# Python puts the current folder first: a user's torch.py there would be imported as torch. The command has it nowhere.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109  (pathlib imports more)
    del sys.path[0]

from openneutron.cli import main

if __name__ == "__main__":
    sys.exit(main())
