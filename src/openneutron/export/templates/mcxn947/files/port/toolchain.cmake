# SPDX-License-Identifier: BSD-3-Clause
# GNU Arm Embedded Toolchain on the path (Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi), for core 0 of the MCX N947: a Cortex-M33
# with the DSP extension, which -mcpu=cortex-m33 includes, and a floating-point unit of single precision. Core 1 has no
# floating-point unit: -DOPENNEUTRON_CPU=-mcpu=cortex-m33.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex_m33)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(OPENNEUTRON_CPU "-mcpu=cortex-m33 -mfpu=fpv5-sp-d16 -mfloat-abi=hard" CACHE STRING "Flags that name the core")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OPENNEUTRON_CPU)
foreach(language C CXX ASM)
    set(CMAKE_${language}_FLAGS_INIT "${OPENNEUTRON_CPU} -mthumb")
endforeach()
foreach(language C CXX)
    string(APPEND CMAKE_${language}_FLAGS_INIT " -ffunction-sections -fdata-sections")
    set(CMAKE_${language}_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "For speed; -Os makes less code")
endforeach()
