/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>

#include "../semihosting.h"
#include "app.h"
#include "fsl_common.h"
#include "fsl_debug_console.h"
#include "startup.h"

uint32_t SystemCoreClock = 150000000u;

void BOARD_InitHardware(void) {}

/* The example's only format is %s. */
void debug_print(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    semihost_print(va_arg(arguments, const char *));
    va_end(arguments);
}

_Noreturn void board_exit(int code) { semihost_exit(code); }
