# SPDX-License-Identifier: BSD-3-Clause
# Core 0 of the MCX N947: a Cortex-M33 with the DSP extension, which -mcpu=cortex-m33 includes, and a floating-point unit of single
# precision. Core 1 has no floating-point unit: -DOPENNEUTRON_CPU=-mcpu=cortex-m33.
set(OPENNEUTRON_CPU "-mcpu=cortex-m33 -mfpu=fpv5-sp-d16 -mfloat-abi=hard" CACHE STRING "Flags that name the core")
