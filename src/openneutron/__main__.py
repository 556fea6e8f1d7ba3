# SPDX-License-Identifier: BSD-3-Clause
"""``python -m openneutron`` is the command ``openneutron``."""

import os
import sys

# Python puts the current folder first on sys.path, so a user's torch.py would be imported as torch. This command
# removes the folder.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109  (pathlib imports more)
    del sys.path[0]

from openneutron.cli import main

if __name__ == "__main__":
    sys.exit(main())
