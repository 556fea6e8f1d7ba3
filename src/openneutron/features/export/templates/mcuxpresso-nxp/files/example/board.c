/* SPDX-License-Identifier: BSD-3-Clause */
/* What the example needs of a board, by the names that the MCUXpresso SDK's own examples have. BOARD_InitHardware of the SDK's eIQ
 * examples turns the NPU's clock on. */
#include "board.h"

#include "app.h"
#include "fsl_common.h"
#include "fsl_debug_console.h"

void board_init(void) { BOARD_InitHardware(); }

void board_print(const char *text) {
    /* The console turns a line's end into a carriage return and a line feed where that is asked for alone. */
    PRINTF("%s", text);
}

uint32_t board_stack_used(void) { return 0; /* the SDK's start code does not paint the stack */ }
