/* SPDX-License-Identifier: BSD-3-Clause */
/* A board with stdio: a computer, or a microcontroller whose C library has a console. */
#include <stdio.h>

#include "board.h"

void board_init(void) {}

void board_print(const char *text) { fputs(text, stdout); }

uint32_t board_stack_used(void) { return 0; }

#ifdef NEUTRON_THREADS
enum { THREADS = 4, SCRATCH_BYTES = 1 << 16 };

NeutronError board_set_threads(OpenNeutronInstance *instance) {
    static OPENNEUTRON_ALIGNED uint8_t scratch[(THREADS - 1) * SCRATCH_BYTES];
    const bool fits = openneutron_thread_scratch_bytes(instance) <= SCRATCH_BYTES;
    return openneutron_set_threads(instance, THREADS, fits ? scratch : NULL, fits ? SCRATCH_BYTES : 0);
}
#endif

#if OPENNEUTRON_PROFILED
const char *board_counter(void) { return "modelled cycles"; }
#endif
