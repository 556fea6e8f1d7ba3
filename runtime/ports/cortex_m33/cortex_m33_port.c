/* SPDX-License-Identifier: BSD-3-Clause */
#include "cortex_m33_port.h"

/* Armv8-M Architecture Reference Manual (DDI 0553), the DWT unit and the debug exception and monitor control register. */
#define DEMCR ((volatile uint32_t *)0xE000EDFCu)
#define DEMCR_TRCENA (1u << 24)
#define DWT_CTRL ((volatile uint32_t *)0xE0001000u)
#define DWT_CTRL_CYCCNTENA (1u << 0)
#define DWT_CTRL_NOCYCCNT (1u << 25)
#define DWT_CYCCNT ((volatile uint32_t *)0xE0001004u)

static uint32_t now_cycles(void) { return *DWT_CYCCNT; }

const NeutronPort *neutron_cortex_m33_port(void) {
    static const NeutronPort counted = {.now_cycles = now_cycles};
    static const NeutronPort modelled = {0};
    *DEMCR |= DEMCR_TRCENA;
    if ((*DWT_CTRL & DWT_CTRL_NOCYCCNT) != 0) return &modelled;
    *DWT_CTRL |= DWT_CTRL_CYCCNTENA;
    return &counted;
}
