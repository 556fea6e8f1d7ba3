/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"

#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#if defined(CONFIG_SOC_SERIES_MCXN)
#include <fsl_clock.h>
#include <fsl_reset.h>
#endif

void board_init(void) {
#if defined(CONFIG_SOC_SERIES_MCXN)
    CLOCK_EnableClock(kCLOCK_Neutron);
    RESET_ClearPeripheralReset(kNEUTRON_RST_SHIFT_RSTn);
#endif
}

void board_print(const char *text) { printk("%s", text); }

uint32_t board_stack_used(void) { return 0; }
