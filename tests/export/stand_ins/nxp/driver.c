/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for NXP's driver and firmware. It takes microcode of one release, and computes with this project's driver, whose functions have
 * the prefix own_. As NXP's driver it keeps the address of the configuration, and reads three addresses behind those of the outputs. */
#include <stdlib.h>
#include <string.h>

#include "NeutronDriver.h"

NeutronError own_neutronInit(void);
NeutronError own_neutronDeinit(void);
NeutronError own_neutronSetConfig(const NeutronConfig *config);
size_t own_neutronGetModelContextSize(void);
NeutronError own_neutronModelPrepare(const NeutronModelConfig *config, NeutronModelHandle *handle);
NeutronError own_neutronModelUnprepare(NeutronModelHandle handle);
NeutronError own_neutronRunBlocking(NeutronModelHandle handle, const NeutronDataConfig *data);

#define RELEASE 0x00030001u
#define CRASHES 0x00020001u
#define REFUSED ((NeutronError)(ERROR_COMPONENT_DRIVER | ERROR_CATEGORY_DRIVER_UCODE << 3 | 77 << 8))
#define FAULT ((NeutronError)(ERROR_COMPONENT_FIRMWARE | 1 << 3 | 134 << 8))

typedef struct {
    const NeutronModelConfig *config;
    NeutronModelConfig own;
    NeutronModelHandle handle;
    void *memory[32];
    uint32_t microcode[4096] __attribute__((aligned(16)));
} Model;

NeutronError neutronInit(void) { return own_neutronInit(); }
NeutronError neutronDeinit(void) { return own_neutronDeinit(); }
NeutronError neutronSetConfig(NeutronConfig *config) { return own_neutronSetConfig(config); }

/* The data of NXP's driver is small. This one has a model's microcode beside it. */
size_t neutronGetModelContextSize(void) { return sizeof(void *); }

NeutronError neutronModelPrepare(const NeutronModelConfig *mcfg, NeutronModelHandle *hdl) {
    static Model model;
    const uint32_t *words = mcfg->microcode;
    if (words[1] == CRASHES) ((volatile uint32_t *)(uintptr_t)8)[0] = 1;
    if (words[1] != RELEASE || words[6] > sizeof model.microcode) return REFUSED;
    if (own_neutronGetModelContextSize() > sizeof model.memory || mcfg->timeoutSeconds != 60) return FAULT;
#if NO_HEAP_USAGE
    if (*hdl == NULL) return FAULT;
    *(void **)*hdl = &model;
#else
    if (*hdl != NULL) return FAULT;
    *hdl = &model;
#endif
    memcpy(model.microcode, words, words[6]);
    model.microcode[1] = OWN_VERSION;
    model.config = mcfg;
    model.own = *mcfg;
    model.own.microcode = model.microcode;
    model.handle = model.memory;
    if (memcmp(mcfg->kernels, "NXP's kernels", 13) != 0) return FAULT;
    return own_neutronModelPrepare(&model.own, &model.handle);
}

static Model *model_of(NeutronModelHandle hdl) {
#if NO_HEAP_USAGE
    return *(Model **)hdl;
#else
    return hdl;
#endif
}

NeutronError neutronModelUnprepare(NeutronModelHandle hdl) { return own_neutronModelUnprepare(model_of(hdl)->handle); }

NeutronError neutronRunBlocking(NeutronModelHandle hdl, const NeutronDataConfig *dcfg) {
    Model *model = model_of(hdl);
    if (((const uint32_t *)model->config->microcode)[1] != RELEASE) return FAULT;
    const NeutronError error = own_neutronRunBlocking(model->handle, dcfg);
#ifdef __linux__
    int8_t *first = dcfg->outputs[0];
    const char *given = getenv("STAND_IN_WRONG_BY");
    const int wrong_by = given == NULL ? 0 : atoi(given);
    if (error == ENONE) *first = (int8_t)(*first > 0 ? *first - wrong_by : *first + wrong_by);
#endif
    return error;
}
