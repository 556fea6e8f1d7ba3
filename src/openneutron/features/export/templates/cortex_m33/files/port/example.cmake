# SPDX-License-Identifier: BSD-3-Clause
# openneutron_image(NAME SCRIPT): the example as NAME.elf, linked by a script of this folder.
function(openneutron_image name script)
    add_executable(${name} example/main.c port/board.c port/startup.c ${OPENNEUTRON_EXAMPLE_SOURCES})
    # The link runs in the build folder. Its options name files there without a path: compiler and linker divide options at commas,
    # and CMake before 3.28 lets the shell expand a dollar sign in them.
    configure_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${script}" "${CMAKE_CURRENT_BINARY_DIR}/${script}" COPYONLY)
    set_target_properties(${name} PROPERTIES SUFFIX .elf LINK_DEPENDS "${CMAKE_CURRENT_BINARY_DIR}/${script}")
    target_include_directories(${name} PRIVATE example port)
    target_compile_options(${name} PRIVATE ${warnings})
    target_link_libraries(${name} PRIVATE openneutron)
    # newlib's assembler files lack a .note.GNU-stack section; without noexecstack the linker warns of each.
    target_link_options(${name} PRIVATE -nostartfiles -T ${script}
        -Wl,--gc-sections -Wl,-z,noexecstack -Wl,-Map=${name}.map)
endfunction()

openneutron_image(example mps2_an505.ld)
include("${port}/chip.cmake" OPTIONAL)
find_program(OPENNEUTRON_SIZE NAMES arm-none-eabi-size llvm-size size REQUIRED)
add_custom_command(TARGET example POST_BUILD
    COMMAND ${CMAKE_COMMAND} "-DELF=$<TARGET_FILE:example>" "-DSIZE=${OPENNEUTRON_SIZE}" -P "${port}/memory.cmake"
    VERBATIM)
# A model compiled with profiling counts instructions in QEMU, which then takes longer.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../model/openneutron_models.h" OPENNEUTRON_PROFILED REGEX "_PROFILED 1")
if(OPENNEUTRON_PROFILED)
    set(OPENNEUTRON_COUNTING -icount shift=0)
endif()
# cmake --build build --target run
add_custom_target(run
    COMMAND qemu-system-arm -M mps2-an505 -display none -monitor none -serial none ${OPENNEUTRON_COUNTING}
        -semihosting-config enable=on,target=native -kernel "$<TARGET_FILE:example>"
    DEPENDS example USES_TERMINAL VERBATIM)
