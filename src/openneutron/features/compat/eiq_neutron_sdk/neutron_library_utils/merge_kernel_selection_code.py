# SPDX-License-Identifier: BSD-3-Clause
"""Merge the kernel selections of several models, or of several partitions of a model, into one that an application
links.

    python -m openneutron.features.compat.eiq_neutron_sdk.neutron_library_utils.merge_kernel_selection_code \\
        -input-files a.c b.c -output-file all.c
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from openneutron.errors import OpenNeutronError
from openneutron.features.compat.eiq_neutron_sdk.neutron_library_utils import merge_kernel_selection_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0, or 2 after a message on standard error."""
    parser = argparse.ArgumentParser(
        prog="merge_kernel_selection_code", description="Merge kernel selections into one C file."
    )
    parser.add_argument("-input-files", nargs="+", required=True, metavar="FILE", dest="inputs")
    parser.add_argument("-output-file", required=True, metavar="FILE", dest="output")
    given = parser.parse_args(arguments)
    try:
        merge_kernel_selection_files(given.inputs, given.output)
    except OpenNeutronError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
