/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for the header of NXP's SDK: the public names that a bundle uses. As there, the library for Linux has a heap. */
#ifndef NEUTRON_DRIVER_H
#define NEUTRON_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "NeutronErrors.h"

#ifdef __linux__
#define NO_HEAP_USAGE 0
#else
#define NO_HEAP_USAGE 1
#endif

typedef enum { ERROR_CATEGORY_DRIVER_GENERIC, ERROR_CATEGORY_DRIVER_UNSUPPORTED, ERROR_CATEGORY_DRIVER_UCODE } DriverCategory;

typedef void *NeutronModelHandle;

typedef struct {
    const void *microcode;
    const void *weights;
    const void *kernels;
    uint32_t timeoutSeconds;
    char *subgraphName;
} NeutronModelConfig;

typedef struct {
    const void **inputs;
    void **outputs;
    void *scratch;
    void *scratchWeights;
} NeutronDataConfig;

typedef struct {
    void (*copy)(void *dst, const void *src, uint32_t size, uint32_t channel);
    void (*wait)(uint32_t channel);
} NeutronConfig;

NeutronError neutronInit(void);
NeutronError neutronDeinit(void);
NeutronError neutronSetConfig(NeutronConfig *config);
size_t neutronGetModelContextSize(void);
NeutronError neutronModelPrepare(const NeutronModelConfig *mcfg, NeutronModelHandle *hdl);
NeutronError neutronModelUnprepare(NeutronModelHandle hdl);
NeutronError neutronRunBlocking(NeutronModelHandle hdl, const NeutronDataConfig *dcfg);

#endif
