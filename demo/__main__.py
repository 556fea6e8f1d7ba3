# SPDX-License-Identifier: BSD-3-Clause
"""``python -m demo``."""

from __future__ import annotations

from openneutron.cli.hushed import hushed

if __name__ == "__main__":
    # Importing torchao and ExecuTorch warns of their own affairs, so it happens in here.
    with hushed():
        from demo.main_job import main

        main()
