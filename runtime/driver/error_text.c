/* SPDX-License-Identifier: BSD-3-Clause */
#include "NeutronDriver.h"

const char *neutronErrorText(NeutronError error) {
    switch (getNeutronErrorCause(error)) {
        case ENONE:
            return "no error";
        case ENEUTRON_MAGIC:
            return "this is not Neutron microcode";
        case ENEUTRON_VERSION:
            return "the microcode has another version of OpenNeutron's format than the one this driver runs; compile the model "
                   "with the OpenNeutron release that the driver comes from";
        case ENEUTRON_TRUNCATED:
            return "the microcode or the weights are shorter than the header says; the file is truncated";
        case ENEUTRON_CHECKSUM:
            return "the microcode's checksum is wrong; the file is corrupt";
        case ENEUTRON_LAYOUT:
            return "the microcode has a header word, section or record that is out of its bounds";
        case ENEUTRON_KERNEL:
            return isNeutronErrorOfVariant(error)
                       ? "the microcode calls a kernel of which no registered variant takes the call; link the kernel "
                         "selection of this model"
                       : "the microcode calls a kernel that is not registered; link the kernel selection of this model";
        case ENEUTRON_BUFFER:
            return "the microcode has a buffer or binding that does not lie inside its memory";
        case ENEUTRON_CALL:
            return "the microcode has a call whose parameters or window its kernel refuses";
        case ENEUTRON_INSTRUCTION:
            return "the microcode has an unknown or malformed instruction";
        case ENEUTRON_NULL:
            return "a pointer is null that must not be";
        case ENEUTRON_ALIGNMENT:
            return "microcode, weights, scratch and prefetch buffers must be aligned to 16 bytes";
        case ENEUTRON_HANDLE:
            return "the handle is not that of a prepared model";
        case ENEUTRON_MEMORY:
            return "there is no memory for the model's context";
        case ENEUTRON_STATE:
            return "neutronInit was not called, or the NPU is suspended";
        case ENEUTRON_TIMEOUT:
            return "the run took longer than timeoutSeconds";
        case ENEUTRON_WORK:
            return "a run of the microcode, or checking it, would take longer than this driver was built to allow "
                   "(NEUTRON_MAX_WORK, NEUTRON_MAX_CHECKS)";
        case ENEUTRON_INDEX:
            return "an index that was given or computed is outside the tensor that it takes values from";
        case ENEUTRON_FOREIGN:
            return "this is microcode of another compiler, such as NXP's eIQ Neutron converter, which NXP's firmware runs and "
                   "OpenNeutron's driver does not; compile the model with OpenNeutron, or link NXP's driver";
        default:
            return "unknown error";
    }
}

const char *getNeutronErrorComponent(NeutronError error) {
    switch (GET_ERROR_COMPONENT(error)) {
        case ERROR_COMPONENT_LIBRARY:
            return "library";
        case ERROR_COMPONENT_FIRMWARE:
            return "firmware";
        case ERROR_COMPONENT_DRIVER:
            return "driver";
        default:
            return "none";
    }
}

const char *getNeutronErrorCategory(NeutronError error) {
    switch (GET_ERROR_CATEGORY(error)) {
        case ERROR_CATEGORY_DRIVER_GENERIC:
            return "generic";
        case ERROR_CATEGORY_DRIVER_UNSUPPORTED:
            return "unsupported";
        case ERROR_CATEGORY_DRIVER_UCODE:
            return "microcode";
        case ERROR_CATEGORY_DRIVER_INVALID:
            return "invalid argument";
        case ERROR_CATEGORY_DRIVER_BAD_HANDLE:
            return "bad handle";
        case ERROR_CATEGORY_DRIVER_NO_MEMORY:
            return "no memory";
        case ERROR_CATEGORY_DRIVER_INTERNAL_FAULT:
            return "internal fault";
        case ERROR_CATEGORY_DRIVER_UNKNOWN_ARCH:
            return "unknown architecture";
        case ERROR_CATEGORY_DRIVER_TRACE_NOT_RUN:
            return "trace not run";
        case ERROR_CATEGORY_DRIVER_TIMEOUT:
            return "time-out";
        default:
            return "none";
    }
}
