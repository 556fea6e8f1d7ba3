/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"

#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "openneutron_zephyr.h"

void board_init(void) { neutronSetPort(openneutron_zephyr_port()); }

void board_print(const char *text) { printk("%s", text); }

uint32_t board_stack_used(void) {
    size_t unused = 0;
    if (k_thread_stack_space_get(k_current_get(), &unused) != 0) return 0;
    return (uint32_t)(k_current_get()->stack_info.size - unused);
}

#if OPENNEUTRON_PROFILED
const char *board_counter(void) { return "cycles"; }
#endif
