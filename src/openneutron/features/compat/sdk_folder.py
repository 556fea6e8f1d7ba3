# SPDX-License-Identifier: BSD-3-Clause
"""Create a folder with the files and programs of an installed SDK that ExecuTorch's NXP backend and its tests look for.

    python -m openneutron.features.compat.sdk_folder sdk
    export PYTHONPATH=$PWD/sdk PATH=$PWD/sdk/bin:$PATH NXP_RUNNER_PATH=$PWD/sdk/bin/nxp_executor_runner

Names and paths are the SDK's, the contents are this project's. The package ``eiq_neutron_sdk`` is
``openneutron.features.compat.eiq_neutron_sdk``. The library is this project's driver with its kernels. ``nxp_executor_runner``
runs a ``.pte`` in ExecuTorch's runtime with our delegate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from openneutron import __version__, targets
from openneutron.device import files
from openneutron.device.runtime_sources import OTHER_MACHINES, runtime_folder
from openneutron.errors import InvalidOptionError, MissingToolError, OpenNeutronError

PACKAGE = "eiq_neutron_sdk"
DISTRIBUTIONS = (PACKAGE, "eiq_nsys")
"""The packages whose versions ExecuTorch's tests query."""

FLAGS = ("-std=c11", "-O2", "-ffunction-sections", "-fdata-sections", "-DNEUTRON_PORTABLE_ONLY")

INIT = '''# SPDX-License-Identifier: BSD-3-Clause
"""openneutron.features.compat.eiq_neutron_sdk under the name of NXP's SDK; made by openneutron.features.compat.sdk_folder."""

import sys

from openneutron.features.compat import eiq_neutron_sdk as _ours
from openneutron.features.compat.eiq_neutron_sdk import merge_kernel_selection_files, neutron_converter, neutron_library_utils

# `python -m eiq_neutron_sdk.neutron_library_utils.merge_kernel_selection_code` finds that module in the folder of its package.
for _module in (neutron_converter, neutron_library_utils):
    sys.modules[__name__ + _module.__name__.removeprefix(_ours.__name__)] = _module

__version__ = "{version}"
'''

FIRMWARE = "This is not firmware: programs of OpenNeutron run in its driver, on the host or in the application.\n"

ENVIRONMENT = """/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a simulator that is a program of its own would be found. This project's driver runs in the process: it takes the paths,
 * and does nothing with them. */
#ifndef NEUTRON_ENV_CONFIG_H
#define NEUTRON_ENV_CONFIG_H

#ifdef __cplusplus
extern "C" {
#endif
void storeNsysConfigPath(const char *path);
void storeFirmwarePath(const char *path);
void storeNsysPath(const char *path);
#ifdef __cplusplus
}
#endif

#endif
"""

ENVIRONMENT_SOURCE = """/* SPDX-License-Identifier: BSD-3-Clause */
#include "NeutronEnvConfig.h"

void storeNsysConfigPath(const char *path) { (void)path; }
void storeFirmwarePath(const char *path) { (void)path; }
void storeNsysPath(const char *path) { (void)path; }
"""

NSYS = """#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The simulator of OpenNeutron is a library: nxp_executor_runner needs no program for it, but its users name one.
case "$1" in
--version) echo "openneutron {version}" ;;
*) echo "nsys: the simulated NPU runs inside nxp_executor_runner; this program has nothing to do." >&2 && exit 2 ;;
esac
"""

RUNNER = """#!{python}
# SPDX-License-Identifier: BSD-3-Clause
import sys

from openneutron.features.compat.executor_runner import main

sys.exit(main())
"""


def contents() -> dict[str, bytes]:
    """Return the contents of the folder's files by path, except the library."""
    made = {f"{PACKAGE}/__init__.py": INIT.format(version=__version__).encode()}
    for name in DISTRIBUTIONS:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {__version__}\nSummary: Made by OpenNeutron\n"
        made[f"{name}-{__version__}.dist-info/METADATA"] = metadata.encode()
    target = _target_folder()
    made[f"{target}/cmodel/NeutronFirmware.elf"] = FIRMWARE.encode()
    made[f"{target}/common/include/NeutronEnvConfig.h"] = ENVIRONMENT.encode()
    for header in sorted((runtime_folder() / "include").glob("*.h")):
        made[f"{target}/driver/include/{header.name}"] = header.read_bytes()
    made["bin/nsys"] = NSYS.format(version=__version__).encode()
    made["bin/nxp_executor_runner"] = RUNNER.format(python=sys.executable).encode()
    return made


def lay_out(folder: Path, library: bool = True) -> list[Path]:
    """Write the folder that stands in for an installed SDK, and return the paths of its files. With ``library``, also
    compile ``libNeutronDriver.a``, which requires a C compiler.

    Raises InvalidOptionError where the folder is not empty or can't be written, and MissingToolError without a
    compiler.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidOptionError(f"'{folder}' exists and is not an empty folder. Choose another name.")
    made = contents()
    if library:
        made[f"{_target_folder()}/cmodel/libNeutronDriver.a"] = driver_library()
    files.write({folder / name: data for name, data in made.items()}, folder)
    for program in (folder / "bin").iterdir():
        program.chmod(0o755)
    return [folder / name for name in made]


def driver_library() -> bytes:
    """Return the driver with all portable kernels, compiled for this computer as a static library.

    Raises MissingToolError where the C compiler or the archiver is absent or fails.
    """
    compiler, archiver = os.environ.get("CC") or "cc", os.environ.get("AR") or "ar"
    for tool in (compiler, archiver):
        if shutil.which(tool) is None:
            raise MissingToolError(
                f"sdk_folder: there is no '{tool}', which libNeutronDriver.a takes. Install a C compiler (Debian: apt install "
                "gcc), or leave the library out with --no-library."
            )
    runtime = runtime_folder()
    sources = [
        path for folder in ("driver", "kernels", "ports/host") for path in sorted(runtime.glob(f"{folder}/**/*.c"))
    ]
    include = [f"-I{runtime / folder}" for folder in ("include", "kernels", "driver", "ports/host")]
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "NeutronEnvConfig.h").write_text(ENVIRONMENT)
        (Path(work) / "NeutronEnvConfig.c").write_text(ENVIRONMENT_SOURCE)
        named = [str(path) for path in sources if OTHER_MACHINES.search(path.name) is None]
        _run([compiler, *FLAGS, *include, "-I.", "-c", "NeutronEnvConfig.c", *named], work)
        objects = sorted(path.name for path in Path(work).glob("*.o"))
        assert len(objects) == len(named) + 1, "two sources of one name"
        _run([archiver, "rcsD", "libNeutronDriver.a", *objects], work)
        return (Path(work) / "libNeutronDriver.a").read_bytes()


def _run(command: Sequence[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise MissingToolError(f"sdk_folder: {command[0]} can't make libNeutronDriver.a:\n{done.stderr[:2000]}")


def _target_folder() -> str:
    return f"{PACKAGE}/target/{targets.DEFAULT}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 0, or 2 after a message on standard error."""
    parser = argparse.ArgumentParser(prog="sdk_folder", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--no-library", action="store_true", help="Leave libNeutronDriver.a out.")
    given = parser.parse_args(arguments)
    try:
        made = lay_out(given.folder, not given.no_library)
    except OpenNeutronError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.writelines(f"{path}\n" for path in made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
