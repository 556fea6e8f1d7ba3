/* SPDX-License-Identifier: BSD-3-Clause */
#include "openneutron_zephyr.h"

#include <zephyr/kernel.h>

static uint32_t now_cycles(void) { return k_cycle_get_32(); }

static uint32_t now_seconds(void) { return (uint32_t)(k_uptime_get() / 1000); }

const NeutronPort *openneutron_zephyr_port(void) {
    static const NeutronPort port = {.now_cycles = now_cycles, .now_seconds = now_seconds};
    return &port;
}
