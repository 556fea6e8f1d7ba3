/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the model on the golden inputs; one line for each kernel call of its profile: kernel and modelled cycles. */
#include <stdio.h>
#include <string.h>

#include "NeutronDriver.h"
#include "golden.h"
#include "openneutron.h"

static uint8_t results[OPENNEUTRON_OUTPUT_BYTES];

int main(void) {
    void *outputs[] = {results};
    const NeutronEvent *events = openneutron_profile_events(0);
    if (events == NULL || openneutron_init() != ENONE) return 1;
    if (openneutron_run(openneutron_golden_inputs, outputs) != ENONE) return 1;
    for (uint32_t i = 0; i < OPENNEUTRON_PROFILE_BYTES / sizeof *events && events[i].start.opCode != 0; ++i) {
        printf("%d %u\n", events[i].start.opCode, (unsigned)(events[i].stop.time - events[i].start.time));
    }
    return 0;
}
