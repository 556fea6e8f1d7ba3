/* SPDX-License-Identifier: BSD-3-Clause */
#include "../semihosting.h"
#include "startup.h"

void console_print(const char *text);

void console_print(const char *text) { semihost_print(text); }

void board_exit(int code) { semihost_exit(code); }
