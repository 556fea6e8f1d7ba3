/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a model with matrix products on the NPU: a buffer of NXP's driver with the weights of each call and the arena. Each begins
 * at a page. */
#include "openneutron_jobs.h"

#include "NeutronDriver.h"
#include "host_jobs.h"
#include "neutron_isa.h"

#define PAGE 4096u

static size_t whole_pages(size_t size) { return (size + PAGE - 1) & ~(size_t)(PAGE - 1); }

static size_t weights_size(const OpenNeutronModel *model, uint32_t call) {
    const NeutronHeader *header = model->calls[call].microcode;
    return header->weights_size;
}

/* The bytes before the weights of a call; of call call_count: before the arena. */
static size_t offset_of(const OpenNeutronModel *model, uint32_t call) {
    size_t offset = 0;
    for (uint32_t i = 0; i < call; ++i) offset += whole_pages(weights_size(model, i));
    return offset;
}

const char *openneutron_jobs_problem(void) { return neutron_host_jobs_problem(); }

NeutronError openneutron_jobs_begin(const OpenNeutronModel *model, OpenNeutronMemory *arena) {
    NeutronError error = neutron_host_jobs_open();
    if (error != ENONE) return error;
    const size_t start = offset_of(model, model->call_count);
    uint8_t *buffer = neutron_host_jobs_allocate(start + model->arena_bytes[0]);
    if (buffer == NULL) return ENEUTRON_MEMORY;
    for (uint32_t i = 0; i < model->call_count && error == ENONE; ++i) {
        error = neutron_host_jobs_place(buffer + offset_of(model, i), model->calls[i].weights, weights_size(model, i));
    }
    if (error != ENONE) {
        neutron_host_jobs_release(buffer);
        return error;
    }
    arena->address = buffer + start;
    arena->size_bytes = model->arena_bytes[0];
    return ENONE;
}

void openneutron_jobs_end(const OpenNeutronModel *model, void *arena) {
    neutron_host_jobs_release((uint8_t *)arena - offset_of(model, model->call_count));
}

const void *openneutron_jobs_weights(const OpenNeutronModel *model, const void *arena, uint32_t call) {
    return (const uint8_t *)arena - offset_of(model, model->call_count) + offset_of(model, call);
}

void openneutron_release(OpenNeutronInstance *instance) {
    const OpenNeutronModel *model = instance->model;
    if (model == NULL) return;
    for (uint32_t i = 0; i < model->call_count; ++i) neutronModelUnprepare(&instance->contexts[i]);
    openneutron_jobs_end(model, instance->arenas[0]);
    instance->model = NULL;
}
