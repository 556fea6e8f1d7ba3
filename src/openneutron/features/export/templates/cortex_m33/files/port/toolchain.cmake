# SPDX-License-Identifier: BSD-3-Clause
# GNU Arm Embedded Toolchain on the path (Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi). YOUR CHIP: one with a
# floating-point unit gets -DOPENNEUTRON_CPU="-mcpu=cortex-m33 -mfpu=fpv5-sp-d16 -mfloat-abi=hard". The port of a chip sets it in
# core.cmake.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex_m33)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
include("${CMAKE_CURRENT_LIST_DIR}/core.cmake" OPTIONAL)
set(OPENNEUTRON_CPU "-mcpu=cortex-m33" CACHE STRING "Flags that name the core")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OPENNEUTRON_CPU)
foreach(language C CXX ASM)
    set(CMAKE_${language}_FLAGS_INIT "${OPENNEUTRON_CPU} -mthumb")
endforeach()
foreach(language C CXX)
    string(APPEND CMAKE_${language}_FLAGS_INIT " -ffunction-sections -fdata-sections")
    set(CMAKE_${language}_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "For speed; -Os makes less code")
endforeach()
