# SPDX-License-Identifier: BSD-3-Clause
"""``python -m demo [--qat]``."""

from __future__ import annotations

import argparse

from openneutron.third_party import suppressed

if __name__ == "__main__":
    # Importing torchao and ExecuTorch warns of their own affairs, so it happens in here.
    with suppressed():
        from demo.main_job import main

        options = argparse.ArgumentParser(
            prog="python -m demo", description="CifarNet from training to the simulated NPU."
        )
        options.add_argument("--qat", action="store_true", help="then train it on with its quantization simulated")
        main(options.parse_args().qat)
