#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Install this project with ExecuTorch. No package of NXP's is needed.
set -eu

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python -m pip install "${ROOT}[pytorch]"
