/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FSL_DEBUG_CONSOLE_H
#define FSL_DEBUG_CONSOLE_H

void debug_print(const char *format, ...);
#define PRINTF debug_print

#endif
