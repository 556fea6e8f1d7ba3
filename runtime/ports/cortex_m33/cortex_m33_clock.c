/* SPDX-License-Identifier: BSD-3-Clause */
#include "cortex_m33_port.h"

static struct {
    NeutronPort port;
    uint32_t cycles_per_second;
    uint32_t last_cycles;
    uint32_t rest_cycles; /* less than a second */
    uint32_t seconds;
} counted;

/* The counter wraps after some seconds, so that each reading adds what has passed since the one before. */
static uint32_t now_seconds(void) {
    const uint32_t now = counted.port.now_cycles();
    const uint32_t passed = now - counted.last_cycles;
    counted.last_cycles = now;
    counted.seconds += passed / counted.cycles_per_second;
    counted.rest_cycles += passed % counted.cycles_per_second;
    if (counted.rest_cycles >= counted.cycles_per_second) {
        counted.rest_cycles -= counted.cycles_per_second;
        ++counted.seconds;
    }
    return counted.seconds;
}

const NeutronPort *neutron_cortex_m33_clocked_port(uint32_t cycles_per_second) {
    counted.port = *neutron_cortex_m33_port();
    if (counted.port.now_cycles != NULL && cycles_per_second > 0 && cycles_per_second <= UINT32_MAX / 2) {
        counted.cycles_per_second = cycles_per_second;
        counted.last_cycles = counted.port.now_cycles();
        counted.port.now_seconds = now_seconds;
    }
    return &counted.port;
}
