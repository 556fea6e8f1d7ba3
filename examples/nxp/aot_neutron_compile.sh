#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Quantize and compile an example network, and write MODEL_nxp_delegate.pte to the working directory:
#
#     examples/nxp/aot_neutron_compile.sh [MODEL [FLAG...]]
set -eu

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
MODEL="${1:-cifar10}"
export PYTHONPATH="${ROOT}${PYTHONPATH:+:${PYTHONPATH}}"

python -m examples.nxp.aot_neutron_compile --quantize --delegate -m "${MODEL}" "${@:2}"
