/* SPDX-License-Identifier: BSD-3-Clause */
/* Error codes: component in bits 0 to 2, category in bits 3 to 7, code in bits 8 to 30. The layout and the names of the
 * components and categories are those that ExecuTorch's NXP delegate prints; this text and the codes are ours. */
#ifndef NEUTRON_ERRORS_H
#define NEUTRON_ERRORS_H

#include <stdint.h>

typedef int32_t NeutronError;

#define ENONE 0

enum { ERROR_COMPONENT_LIBRARY = 1, ERROR_COMPONENT_FIRMWARE = 2, ERROR_COMPONENT_DRIVER = 3 };

enum {
    ERROR_CATEGORY_DRIVER_GENERIC = 1,
    ERROR_CATEGORY_DRIVER_UNSUPPORTED = 2,
    ERROR_CATEGORY_DRIVER_UCODE = 3,
    ERROR_CATEGORY_DRIVER_INVALID = 4,
    ERROR_CATEGORY_DRIVER_BAD_HANDLE = 5,
    ERROR_CATEGORY_DRIVER_NO_MEMORY = 6,
    ERROR_CATEGORY_DRIVER_INTERNAL_FAULT = 7,
    ERROR_CATEGORY_DRIVER_UNKNOWN_ARCH = 8,
    ERROR_CATEGORY_DRIVER_TRACE_NOT_RUN = 9,
    ERROR_CATEGORY_DRIVER_TIMEOUT = 10
};

#define NEUTRON_ERROR(component, category, code) ((NeutronError)((component) | (category) << 3 | (code) << 8))
#define NEUTRON_DRIVER_ERROR(category, code) \
    NEUTRON_ERROR(ERROR_COMPONENT_DRIVER, ERROR_CATEGORY_DRIVER_##category, code)

#define GET_ERROR_COMPONENT(error) ((error) & 0x7)
#define GET_ERROR_CATEGORY(error) ((error) >> 3 & 0x1F)
#define GET_ERROR_CODE(error) ((error) >> 8 & 0x7FFFFF)

#ifdef __cplusplus
extern "C" {
#endif
/* The names of an error's component and category, static text. */
const char *getNeutronErrorComponent(NeutronError error);
const char *getNeutronErrorCategory(NeutronError error);
#ifdef __cplusplus
}
#endif

/* A code for each cause of an error. neutronErrorText() of NeutronDriver.h returns its text. */
#define ENEUTRON_MAGIC NEUTRON_DRIVER_ERROR(UCODE, 1)         /* not microcode */
#define ENEUTRON_VERSION NEUTRON_DRIVER_ERROR(UNSUPPORTED, 2) /* microcode of another of our format versions */
#define ENEUTRON_TRUNCATED NEUTRON_DRIVER_ERROR(UCODE, 3)     /* sizes in the header exceed what was given */
#define ENEUTRON_CHECKSUM NEUTRON_DRIVER_ERROR(UCODE, 4)      /* microcode checksum */
#define ENEUTRON_LAYOUT NEUTRON_DRIVER_ERROR(UCODE, 5)        /* a section or record outside the microcode */
#define ENEUTRON_KERNEL NEUTRON_DRIVER_ERROR(UNSUPPORTED, 6)  /* a kernel that is not registered: see below */
#define ENEUTRON_BUFFER NEUTRON_DRIVER_ERROR(UCODE, 7)        /* a buffer outside its base */
#define ENEUTRON_CALL NEUTRON_DRIVER_ERROR(UCODE, 8)          /* a call that its kernel's check refuses */
#define ENEUTRON_INSTRUCTION NEUTRON_DRIVER_ERROR(UCODE, 9)   /* an unknown or malformed instruction */
#define ENEUTRON_NULL NEUTRON_DRIVER_ERROR(INVALID, 10)       /* a pointer that must not be null is */
#define ENEUTRON_ALIGNMENT NEUTRON_DRIVER_ERROR(INVALID, 11)  /* a pointer is not aligned as it must be */
#define ENEUTRON_HANDLE NEUTRON_DRIVER_ERROR(BAD_HANDLE, 12)  /* no prepared model */
#define ENEUTRON_MEMORY NEUTRON_DRIVER_ERROR(NO_MEMORY, 13)   /* too little memory for a context, an arena or a thread */
#define ENEUTRON_STATE NEUTRON_DRIVER_ERROR(GENERIC, 14)      /* neutronInit was not called, or the NPU is suspended */
#define ENEUTRON_TIMEOUT NEUTRON_DRIVER_ERROR(TIMEOUT, 15)    /* timeoutSeconds passed (ports with a clock) */
#define ENEUTRON_WORK NEUTRON_DRIVER_ERROR(UNSUPPORTED, 16)   /* more than NEUTRON_MAX_WORK or NEUTRON_MAX_CHECKS allows */
#define ENEUTRON_INDEX NEUTRON_DRIVER_ERROR(INVALID, 17)      /* an index among the inputs is outside what it indexes */
#define ENEUTRON_FOREIGN NEUTRON_DRIVER_ERROR(UNSUPPORTED, 18) /* microcode of another compiler, such as NXP's */
#define ENEUTRON_NO_STATE NEUTRON_DRIVER_ERROR(INVALID, 19)   /* a model that keeps a state has no memory for it */
#define ENEUTRON_STATE_SIZE NEUTRON_DRIVER_ERROR(INVALID, 20) /* the memory for a model's state is too small */
#define ENEUTRON_RUNNING NEUTRON_DRIVER_ERROR(GENERIC, 21)    /* a model that keeps a state is in a run */
#define ENEUTRON_QUEUE_FULL NEUTRON_DRIVER_ERROR(GENERIC, 22) /* the queue is full */
#define ENEUTRON_NO_JOB NEUTRON_DRIVER_ERROR(INVALID, 23)     /* no job of this handle and data is left to wait for */
#define ENEUTRON_NESTED_WAIT NEUTRON_DRIVER_ERROR(GENERIC, 24) /* a wait inside the queued run that it waits for */

#define ENEUTRON_NO_JOBS NEUTRON_DRIVER_ERROR(INVALID, 25)    /* matrix products on the NPU without neutronSetJobs */
#define ENEUTRON_JOB NEUTRON_DRIVER_ERROR(INTERNAL_FAULT, 26) /* NXP's driver refused a matrix product */
#define ENEUTRON_JOB_MEMORY NEUTRON_DRIVER_ERROR(INVALID, 27) /* parts of a matrix product are 2 GiB apart */

/* Ours. ENEUTRON_KERNEL says which kernel it is: the code's bits 8 to 21 are its id (all set where the id needs more), bit 22
 * that variants of it are registered, but none that takes the call. No error is negative. */
#define NEUTRON_KERNEL_ID_LIMIT 0x3FFF
#define NEUTRON_KERNEL_VARIANT (1 << 30)
static inline NeutronError getNeutronKernelError(uint32_t kernel, int is_variant) {
    const uint32_t id = kernel < NEUTRON_KERNEL_ID_LIMIT ? kernel : NEUTRON_KERNEL_ID_LIMIT;
    return (NeutronError)((uint32_t)ENEUTRON_KERNEL | id << 16 | (is_variant ? (uint32_t)NEUTRON_KERNEL_VARIANT : 0u));
}

/* Ours. The error, without the kernel where it names one: what compares with ENEUTRON_KERNEL and the other codes. */
static inline NeutronError getNeutronErrorCause(NeutronError error) {
    return (error & 0xFFFF) == ENEUTRON_KERNEL ? ENEUTRON_KERNEL : error;
}
/* Ours. Of an error whose cause is ENEUTRON_KERNEL. */
static inline uint32_t getNeutronErrorKernel(NeutronError error) { return (uint32_t)error >> 16 & NEUTRON_KERNEL_ID_LIMIT; }
static inline int isNeutronErrorOfVariant(NeutronError error) { return (error & NEUTRON_KERNEL_VARIANT) != 0; }

#endif
