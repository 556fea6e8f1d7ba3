/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "host_port.h"

#include <time.h>

static uint32_t now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)now.tv_sec;
}

const NeutronPort *neutron_host_port(void) {
    static const NeutronPort port = {.now_seconds = now_seconds};
    return &port;
}
