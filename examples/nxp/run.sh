#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compile CifarNet, write inputs, and run the program on the simulated NPU; all results are in the working directory.
set -eu

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
export PYTHONPATH="${ROOT}${PYTHONPATH:+:${PYTHONPATH}}"
SDK="$(mktemp -d)"
trap 'rm -rf "${SDK}"' EXIT

python -m openneutron.features.compat.sdk_folder "${SDK}" --no-library
python -m examples.nxp.aot_neutron_compile --quantize --delegate -m "cifar10"
python -m examples.nxp.experimental.cifar_net.cifar_net --store-test-data
"${SDK}/bin/nxp_executor_runner" \
    --model cifar10_nxp_delegate.pte \
    --dataset ./cifar10_test_data \
    --output ./cifar10_test_output
