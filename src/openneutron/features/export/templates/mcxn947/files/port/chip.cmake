# SPDX-License-Identifier: BSD-3-Clause
# The MCX N947: example.elf is for QEMU, which has no such machine; firmware.elf is the same code linked for the chip's memory, which
# shows that the model fits. Both have the core's clock at its highest rate, for time-outs.
openneutron_image(firmware mcxn947.ld)
foreach(image example firmware)
    target_compile_definitions(${image} PRIVATE BOARD_CLOCK_HZ=150000000u)
endforeach()
find_program(OPENNEUTRON_SIZE NAMES arm-none-eabi-size llvm-size size REQUIRED)
add_custom_command(TARGET firmware POST_BUILD
    COMMAND ${CMAKE_COMMAND} "-DELF=$<TARGET_FILE:firmware>" "-DSIZE=${OPENNEUTRON_SIZE}"
        -P "${CMAKE_CURRENT_LIST_DIR}/memory.cmake"
    VERBATIM)
