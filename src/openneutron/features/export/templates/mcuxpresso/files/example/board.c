/* SPDX-License-Identifier: BSD-3-Clause */
/* What the example needs of a board, by the names that the MCUXpresso SDK's own examples have. */
#include "board.h"

#include "app.h"
#include "cortex_m33_port.h"
#include "fsl_common.h"
#include "fsl_debug_console.h"

void board_init(void) {
    BOARD_InitHardware();
    neutronSetPort(neutron_cortex_m33_clocked_port(SystemCoreClock));
}

void board_print(const char *text) {
    /* The console turns a line's end into a carriage return and a line feed where that is asked for alone. */
    PRINTF("%s", text);
}

uint32_t board_stack_used(void) { return 0; /* the SDK's start code does not paint the stack */ }

#if OPENNEUTRON_PROFILED
const char *board_counter(void) { return neutron_cortex_m33_port()->now_cycles != NULL ? "cycles" : "modelled cycles"; }
#endif
