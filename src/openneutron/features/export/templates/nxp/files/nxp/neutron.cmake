# SPDX-License-Identifier: BSD-3-Clause
# Finds NXP's driver in the user's own SDK: NEUTRON_SDK, a CMake variable or an environment variable, names the MCUXpresso SDK, its folder
# middleware/eiq/neutron, the eIQ Neutron SDK, or a folder with the headers and libraries themselves.
# Sets NEUTRON_INCLUDES, NEUTRON_DEFINITIONS by the members of the header's structs, and, with neutron_libraries(), NEUTRON_LIBRARIES.
if(NOT NEUTRON_SDK AND DEFINED ENV{NEUTRON_SDK})
    set(NEUTRON_SDK "$ENV{NEUTRON_SDK}")
endif()
if(NOT NEUTRON_SDK OR NOT IS_DIRECTORY "${NEUTRON_SDK}")
    message(FATAL_ERROR "NEUTRON_SDK is '${NEUTRON_SDK}', which is no folder. Set it to your copy of NXP's MCUXpresso SDK or eIQ "
        "Neutron SDK: -DNEUTRON_SDK=FOLDER.")
endif()
set(neutron_roots "${NEUTRON_SDK}" "${NEUTRON_SDK}/middleware/eiq/neutron"
    "${NEUTRON_SDK}/middleware/eiq/executorch/third-party/neutron"
    "${NEUTRON_SDK}/middleware/eiq/tensorflow-lite/third_party/neutron")
file(GLOB neutron_targets LIST_DIRECTORIES true "${NEUTRON_SDK}/target/*" "${NEUTRON_SDK}/eiq_neutron_sdk/target/*")
if(NEUTRON_TARGET)
    list(FILTER neutron_targets INCLUDE REGEX "/${NEUTRON_TARGET}$")
endif()
list(APPEND neutron_roots ${neutron_targets})
set(neutron_options NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)

unset(NEUTRON_INCLUDES)
foreach(header NeutronDriver.h NeutronErrors.h)
    unset(neutron_found)
    find_path(neutron_found ${header} PATHS ${neutron_roots}
        PATH_SUFFIXES driver/include common/include include include/neutron . ${neutron_options})
    if(NOT neutron_found)
        message(FATAL_ERROR "NEUTRON_SDK is '${NEUTRON_SDK}', where ${header} is not found. Set it to the folder of NXP's SDK in which "
            "driver/include/NeutronDriver.h is.")
    endif()
    list(APPEND NEUTRON_INCLUDES "${neutron_found}")
endforeach()
list(GET NEUTRON_INCLUDES 0 neutron_driver)
list(REMOVE_DUPLICATES NEUTRON_INCLUDES)
unset(NEUTRON_DEFINITIONS)
foreach(member kernels timeoutSeconds)
    file(STRINGS "${neutron_driver}/NeutronDriver.h" neutron_lines REGEX "[ *]${member};")
    if(neutron_lines)
        string(TOUPPER "OPENNEUTRON_HAS_${member}" neutron_definition)
        list(APPEND NEUTRON_DEFINITIONS ${neutron_definition})
    endif()
endforeach()
message(STATUS "NXP's driver: ${NEUTRON_INCLUDES}")

# Sets NEUTRON_LIBRARIES: libNeutronDriver.a and libNeutronFirmware.a in the folder NEUTRON_CHIP, or in NEUTRON_SDK itself. The SDKs of
# 2024 have those of i.MX RT700 in rt700, later ones in rt700/cm33.
macro(neutron_libraries)
    unset(NEUTRON_LIBRARIES)
    string(REGEX REPLACE "^rt700/cm33$" "rt700" neutron_earlier "${NEUTRON_CHIP}")
    foreach(root IN LISTS neutron_roots)
        foreach(chip "${NEUTRON_CHIP}" "${neutron_earlier}")
            list(APPEND neutron_places "${root}/${chip}")
        endforeach()
    endforeach()
    list(APPEND neutron_places "${NEUTRON_SDK}")
    foreach(place IN LISTS neutron_places)
        if(NOT NEUTRON_LIBRARIES AND EXISTS "${place}/libNeutronDriver.a" AND EXISTS "${place}/libNeutronFirmware.a")
            set(NEUTRON_LIBRARIES "${place}/libNeutronDriver.a" "${place}/libNeutronFirmware.a")
        endif()
    endforeach()
    if(NOT NEUTRON_LIBRARIES)
        message(FATAL_ERROR "NEUTRON_SDK is '${NEUTRON_SDK}', where no folder '${NEUTRON_CHIP}' has libNeutronDriver.a and "
            "libNeutronFirmware.a. Set NEUTRON_CHIP to the folder of your chip's libraries: -DNEUTRON_CHIP=mcxn.")
    endif()
    message(STATUS "NXP's libraries: ${NEUTRON_LIBRARIES}")
endmacro()
