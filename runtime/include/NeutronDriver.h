/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's public API. Names and meaning of structs and functions follow the public NeutronDriver.h that
 * ExecuTorch's NXP delegate is written against; this text is ours. What is ours alone is marked so. */
#ifndef NEUTRON_DRIVER_H
#define NEUTRON_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "NeutronErrors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *NeutronModelHandle;
#define NEUTRON_INVALID_HANDLE NULL

/* microcode: aligned to 16 bytes, valid until unprepare. weights: aligned to 16. kernels: may be NULL, it is not read.
 * timeoutSeconds: how long one run may take; 0 is for ever. A port without a clock ignores it. */
typedef struct {
    const void *microcode;
    const void *weights;
    const void *kernels;
    uint32_t timeoutSeconds;
} NeutronModelConfig;

/* inputs: one pointer for each graph input. outputs: one for each graph output, then scratch, profile and debug
 * (scratch aligned to 16, of the header's scratch_size; profile and debug may be NULL where their size is 0).
 * scratch: not read, since ExecuTorch's NXP delegate does not set it. scratchWeights: the prefetch buffer, aligned
 * to 16; read only where the header's prefetch_size is not 0. Outputs, scratch and prefetch memory
 * overlap nothing else, but for an input or output that lies at its own place in scratch. */
typedef struct {
    const void **inputs;
    void **outputs;
    void *scratch;
    void *scratchWeights;
} NeutronDataConfig;

/* Copies constants to SRAM: copy starts a transfer on a channel, wait returns when the channel's transfers are done. */
typedef struct {
    void (*copy)(void *dst, const void *src, uint32_t size, uint32_t channel);
    void (*wait)(uint32_t channel);
} NeutronConfig;

/* Ours. What a chip or host offers beside copy and wait; each may be NULL. now_cycles: the cycle counter for profiles
 * (NULL: modelled cycles). now_seconds: a clock for time-outs. clean/invalidate: cache maintenance around a run. */
typedef struct {
    uint32_t (*now_cycles)(void);
    uint32_t (*now_seconds)(void);
    void (*clean_cache)(const void *address, uint32_t size);
    void (*invalidate_cache)(void *address, uint32_t size);
} NeutronPort;

/* One kernel call of a run, 16 bytes as NXP's profile events are: opCode is the kernel's id, functionCode the operator's
 * low 8 bits, time in cycles. */
typedef struct {
    uint8_t eventCode;
    uint8_t opCode;
    uint8_t functionCode;
    uint8_t timestampCode;
    uint32_t time;
} NeutronEventPoint;
typedef struct {
    NeutronEventPoint start;
    NeutronEventPoint stop;
} NeutronEvent;

/* Ours. Called after each kernel call of a run with the operator's index (tracing, the simulator's walk). */
typedef void (*NeutronCallHook)(void *user, uint32_t operator_index, uint32_t kernel_id, uint32_t cycles);
typedef struct {
    NeutronCallHook afterCall;
    void *user;
} NeutronTraceConfig;

NeutronError neutronInit(void);
NeutronError neutronDeinit(void);

/* Sets the copy callbacks; NULL members mean memcpy and no wait. */
NeutronError neutronSetConfig(const NeutronConfig *config);
/* Ours. Sets the port; NULL restores the default. */
NeutronError neutronSetPort(const NeutronPort *port);
/* Sets the trace of a prepared model; NULL turns it off. */
NeutronError neutronSetTrace(NeutronModelHandle handle, const NeutronTraceConfig *trace);

/* Bytes that *handle must point to before neutronModelPrepare in a NEUTRON_NO_HEAP build. */
size_t neutronGetModelContextSize(void);

/* Ours. Validates all that prepare does, without trusting the sizes in the header: microcode_size and weights_size are
 * what lies in memory. *detail (may be NULL) gets the word offset, kernel id or size the error is about. */
NeutronError neutronModelCheck(const NeutronModelConfig *config, size_t microcode_size, size_t weights_size,
                               uint32_t *detail);
/* Validates the microcode and makes a handle. In a NEUTRON_NO_HEAP build *handle must point to
 * neutronGetModelContextSize() bytes, aligned to 8. */
NeutronError neutronModelPrepare(const NeutronModelConfig *config, NeutronModelHandle *handle);
/* Gives the handle's memory back. The handle is dead from here on: do not pass it to anything again, nor to this function.
 * ENEUTRON_HANDLE for what is no handle helps to find mistakes, but freed memory can't be relied on to say so. */
NeutronError neutronModelUnprepare(NeutronModelHandle handle);

NeutronError neutronRunBlocking(NeutronModelHandle handle, const NeutronDataConfig *data);

NeutronError neutronSuspend(void);
NeutronError neutronResume(void);

/* Ours. The cause in words, static text. */
const char *neutronErrorText(NeutronError error);
/* Ours. The name of the kernel that an error with the cause ENEUTRON_KERNEL is about (getNeutronErrorKernel has its id), static
 * text; NULL for other errors and for ids that no kernel has. Names are linked only where this function is. */
const char *neutronErrorKernelName(NeutronError error);

#ifdef __cplusplus
}
#endif

#endif
