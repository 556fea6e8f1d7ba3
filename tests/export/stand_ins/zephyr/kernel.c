/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>

#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "../semihosting.h"
#include "startup.h"

static struct k_thread thread = {.stack_info = {.size = 8192}};

uint32_t k_cycle_get_32(void) { return 0; }
int64_t k_uptime_get(void) { return 0; }
k_tid_t k_current_get(void) { return &thread; }
int k_thread_stack_space_get(const struct k_thread *asked, size_t *unused) {
    *unused = asked->stack_info.size - 4096;
    return 0;
}

/* The sample's only format is %s. */
void printk(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    semihost_print(va_arg(arguments, const char *));
    va_end(arguments);
}

_Noreturn void board_exit(int code) { semihost_exit(code); }
