/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ZEPHYR_SYS_PRINTK_H
#define ZEPHYR_SYS_PRINTK_H

void printk(const char *format, ...);

#endif
