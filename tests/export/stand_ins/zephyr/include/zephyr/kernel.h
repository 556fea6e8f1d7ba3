/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for Zephyr's: what the module and the sample call. */
#ifndef ZEPHYR_KERNEL_H
#define ZEPHYR_KERNEL_H

#include <stddef.h>
#include <stdint.h>

struct k_thread {
    struct {
        uintptr_t start;
        size_t size;
    } stack_info;
};
typedef struct k_thread *k_tid_t;

uint32_t k_cycle_get_32(void);
int64_t k_uptime_get(void);
k_tid_t k_current_get(void);
int k_thread_stack_space_get(const struct k_thread *thread, size_t *unused);

#endif
