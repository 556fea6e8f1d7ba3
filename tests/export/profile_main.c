/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the model on the golden inputs; one line for each kernel call of its profile: kernel and modelled cycles. */
#include <stdio.h>
#include <string.h>

#include "NeutronDriver.h"
#include "golden.h"

int main(void) {
    if (golden[0].init() != ENONE) return 1;
    const OpenNeutronInstance *instance = golden[0].instance;
    memcpy(openneutron_input(instance, 0), golden[0].inputs[0], instance->model->inputs[0].size_bytes);
    if (openneutron_invoke(golden[0].instance) != ENONE) return 1;
    const NeutronEvent *events = openneutron_profile_events(instance, 0);
    if (events == NULL || openneutron_profile_events(instance, 1) != NULL) return 1;
    for (uint32_t i = 0; i < instance->model->profile_bytes / sizeof *events && events[i].start.opCode != 0; ++i) {
        printf("%d %u\n", events[i].start.opCode, (unsigned)(events[i].stop.time - events[i].start.time));
    }
    return 0;
}
