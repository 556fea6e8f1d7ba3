# SPDX-License-Identifier: BSD-3-Clause
# clang for the same core. string.h comes from a C library for it: the one arm-none-eabi-gcc brings along, wherever that
# is installed, or the one in NEUTRON_LIBC_INCLUDE (picolibc, LLVM's embedded toolchain).
# -DCMAKE_BUILD_TYPE=MinSizeRel (-Os, what CMakeLists.txt takes by itself) or Release (-O2).
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex_m33) # the folder in runtime/ports
set(CMAKE_C_COMPILER clang)
set(CMAKE_C_COMPILER_TARGET arm-none-eabi)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
find_program(CMAKE_AR NAMES arm-none-eabi-ar llvm-ar REQUIRED)
find_program(CMAKE_RANLIB NAMES arm-none-eabi-ranlib llvm-ranlib REQUIRED)
set(NEUTRON_LIBC_INCLUDE "" CACHE PATH "Folder with the C library's string.h")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NEUTRON_LIBC_INCLUDE)
if(NOT NEUTRON_LIBC_INCLUDE)
    find_program(NEUTRON_ARM_GCC NAMES arm-none-eabi-gcc)
    if(NEUTRON_ARM_GCC)
        execute_process(COMMAND ${NEUTRON_ARM_GCC} -print-file-name=../include/string.h
            OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
    if(NOT EXISTS "${found}")
        message(FATAL_ERROR "clang: there is no arm-none-eabi-gcc that says where string.h for this core is. "
            "Install it with its C library, or name a folder with -DNEUTRON_LIBC_INCLUDE=FOLDER.")
    endif()
    get_filename_component(found "${found}" REALPATH)
    get_filename_component(found "${found}" DIRECTORY)
    set(NEUTRON_LIBC_INCLUDE "${found}" CACHE PATH "Folder with the C library's string.h" FORCE)
endif()
# As gcc has it by itself: the core reads and writes words at any address, unless CCR.UNALIGN_TRP forbids it; and no
# register for a frame pointer.
set(CMAKE_C_FLAGS_INIT "-mcpu=cortex-m33 -mthumb -munaligned-access -fomit-frame-pointer -ffunction-sections -fdata-sections -fstack-usage -isystem ${NEUTRON_LIBC_INCLUDE}")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "For speed")
