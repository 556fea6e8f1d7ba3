# SPDX-License-Identifier: BSD-3-Clause
# Debian's gcc-arm-none-eabi with libnewlib-arm-none-eabi, or Arm's own GNU toolchain, on the path.
# -DCMAKE_BUILD_TYPE=MinSizeRel (-Os, what CMakeLists.txt takes by itself) or Release (-O2).
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex_m33) # the folder in runtime/ports
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_FLAGS_INIT "-mcpu=cortex-m33 -mthumb -ffunction-sections -fdata-sections -fstack-usage")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "For speed")
