/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

#include "NeutronDriver.h"

typedef struct {
    NeutronError error;
    const char *text;
} Text;

static const Text texts[] = {
    {ENONE, "no error"},
    {ENEUTRON_MAGIC, "this is not Neutron microcode"},
    {ENEUTRON_VERSION, "the microcode has another version of OpenNeutron's format than the one this driver runs; compile the "
                       "model with the OpenNeutron release that the driver comes from"},
    {ENEUTRON_TRUNCATED, "the microcode or the weights are shorter than the header says; the file is truncated"},
    {ENEUTRON_CHECKSUM, "the microcode's checksum is wrong; the file is corrupt"},
    {ENEUTRON_LAYOUT, "the microcode has a header word, section or record that is out of its bounds"},
    {ENEUTRON_KERNEL,
     "the microcode calls a kernel that is not registered; link the kernel selection of this model"},
    {ENEUTRON_BUFFER, "the microcode has a buffer or binding that does not lie inside its memory"},
    {ENEUTRON_CALL, "the microcode has a call whose parameters or window its kernel refuses"},
    {ENEUTRON_INSTRUCTION, "the microcode has an unknown or malformed instruction"},
    {ENEUTRON_NULL, "a pointer is null that must not be"},
    {ENEUTRON_ALIGNMENT, "microcode, weights, state, scratch and prefetch buffers must be aligned to 16 bytes"},
    {ENEUTRON_HANDLE, "the handle is not that of a prepared model"},
    {ENEUTRON_MEMORY, "there is too little memory: for the model's context, its arena, or a thread"},
    {ENEUTRON_STATE, "neutronInit was not called, or the NPU is suspended"},
    {ENEUTRON_TIMEOUT, "the run took longer than timeoutSeconds"},
    {ENEUTRON_WORK, "a run of the microcode, or checking it, would take longer than this driver was built to allow "
                    "(NEUTRON_MAX_WORK, NEUTRON_MAX_CHECKS)"},
    {ENEUTRON_INDEX, "an index that was given or computed is outside the tensor that it takes values from"},
    {ENEUTRON_FOREIGN,
     "this is microcode of another compiler, such as NXP's eIQ Neutron converter, which NXP's firmware runs and "
     "OpenNeutron's driver does not; compile the model with OpenNeutron, or link NXP's driver"},
    {ENEUTRON_NO_STATE,
     "the model keeps a state between runs and has no memory for it; call neutronSetState with state_size bytes"},
    {ENEUTRON_STATE_SIZE, "the memory for the model's state is smaller than the header's state_size"},
    {ENEUTRON_RUNNING,
     "the model keeps a state and is in a run; it can be reset, get other memory and run again after that run"},
    {ENEUTRON_QUEUE_FULL, "the queue has no space for another run; call neutronWait for each run that was added"},
    {ENEUTRON_NO_JOB, "the queue has no run of this handle and data; call neutronRunNonBlocking first, and neutronWait once"},
    {ENEUTRON_NESTED_WAIT,
     "neutronWait was called in a hook or callback of a queued run, whose thread is the only one; wait after that run"},
    {ENEUTRON_NO_JOBS,
     "the program has matrix products for the NPU's own driver; call neutronSetJobs with its functions first"},
    {ENEUTRON_JOB, "the NPU's own driver refused a matrix product; its version may not be the release that the program was "
                   "compiled for"},
    {ENEUTRON_JOB_MEMORY,
     "weights and scratch of matrix products are 2 GiB apart; place both in one buffer of the NPU's own driver"},
};

const char *neutronErrorText(NeutronError error) {
    if (getNeutronErrorCause(error) == ENEUTRON_KERNEL && isNeutronErrorOfVariant(error)) {
        return "the microcode calls a kernel of which no registered variant takes the call; link the kernel selection of "
               "this model";
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
        if (texts[i].error == getNeutronErrorCause(error)) return texts[i].text;
    }
    return "unknown error";
}

static const char *name_of(const char *const *names, size_t count, NeutronError place) {
    return (size_t)place < count && names[place] != NULL ? names[place] : "none";
}

const char *getNeutronErrorComponent(NeutronError error) {
    static const char *const names[] = {
        [ERROR_COMPONENT_LIBRARY] = "library",
        [ERROR_COMPONENT_FIRMWARE] = "firmware",
        [ERROR_COMPONENT_DRIVER] = "driver",
    };
    return name_of(names, sizeof names / sizeof *names, GET_ERROR_COMPONENT(error));
}

const char *getNeutronErrorCategory(NeutronError error) {
    static const char *const names[] = {
        [ERROR_CATEGORY_DRIVER_GENERIC] = "generic",
        [ERROR_CATEGORY_DRIVER_UNSUPPORTED] = "unsupported",
        [ERROR_CATEGORY_DRIVER_UCODE] = "microcode",
        [ERROR_CATEGORY_DRIVER_INVALID] = "invalid argument",
        [ERROR_CATEGORY_DRIVER_BAD_HANDLE] = "bad handle",
        [ERROR_CATEGORY_DRIVER_NO_MEMORY] = "no memory",
        [ERROR_CATEGORY_DRIVER_INTERNAL_FAULT] = "internal fault",
        [ERROR_CATEGORY_DRIVER_UNKNOWN_ARCH] = "unknown architecture",
        [ERROR_CATEGORY_DRIVER_TRACE_NOT_RUN] = "trace not run",
        [ERROR_CATEGORY_DRIVER_TIMEOUT] = "time-out",
    };
    return name_of(names, sizeof names / sizeof *names, GET_ERROR_CATEGORY(error));
}
