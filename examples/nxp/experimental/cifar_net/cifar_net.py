# SPDX-License-Identifier: BSD-3-Clause
"""Write inputs of CifarNet as files for ``nxp_executor_runner``.

``python -m examples.nxp.experimental.cifar_net.cifar_net --store-test-data`` writes ten files of raw float32 values, in the order
channels, rows, columns, to the folder ``cifar10_test_data``. The CIFAR-10 data set is not downloaded: the inputs are generated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from examples import networks
from openneutron.device import files
from openneutron.errors import OpenNeutronError

FOLDER = Path("cifar10_test_data")

COUNT = 10
"""The number of files; ExecuTorch's example writes as many."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0, or 2 after a message on standard error."""
    parser = argparse.ArgumentParser(prog="cifar_net", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--store-test-data", action="store_true", required=True, help=f"Write {COUNT} inputs to {FOLDER}."
    )
    parser.parse_args(arguments)
    samples = networks.find("cifar10").samples()[:COUNT]
    made = {FOLDER / f"img{place}.bin": image.numpy().tobytes() for place, (image,) in enumerate(samples)}
    try:
        files.write(made, FOLDER)
    except OpenNeutronError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{FOLDER}: {len(made)} generated inputs, since data sets are not downloaded.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
