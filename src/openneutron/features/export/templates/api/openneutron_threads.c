/* SPDX-License-Identifier: BSD-3-Clause */
#include "openneutron.h"

#ifdef NEUTRON_THREADS

#include "NeutronDriver.h"
#include "host_threads.h"

size_t openneutron_thread_scratch_bytes(OpenNeutronInstance *instance) {
    size_t most = 0;
    for (uint32_t i = 0; instance->model != NULL && i < instance->model->call_count; ++i) {
        const size_t bytes = neutronGetThreadScratchSize(&instance->contexts[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

NeutronError openneutron_set_threads(OpenNeutronInstance *instance, uint32_t count, void *scratch, size_t scratch_bytes) {
    if (instance->model == NULL) return ENEUTRON_STATE;
    NeutronError error = ENONE;
    for (uint32_t i = 0; i < instance->model->call_count && error == ENONE; ++i) {
        error = neutron_host_threads_set(&instance->contexts[i], count, scratch, scratch_bytes);
    }
    return error;
}

#endif
