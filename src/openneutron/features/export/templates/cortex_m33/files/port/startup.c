/* SPDX-License-Identifier: BSD-3-Clause */
/* Vector table and reset of a Cortex-M33. YOUR CHIP: its vendor's startup file takes this one's place, or its interrupts
 * follow the sixteen entries below. */
#include <stdint.h>

#include "startup.h"

/* Set by the linker script. */
extern uint32_t board_stack_bottom[];
extern uint32_t board_stack_top[];
extern uint32_t board_data_start[], board_data_end[];
extern const uint32_t board_data_load[];
extern uint32_t board_bss_start[], board_bss_end[];

int main(void);
__attribute__((noreturn)) void board_reset(void);
__attribute__((noreturn)) static void fault(void);

typedef void (*Handler)(void);

/* Armv8-M Architecture Reference Manual (DDI 0553), vector table. */
__attribute__((section(".vectors"), used)) static const struct {
    const uint32_t *stack;
    Handler handlers[15];
} vectors = {board_stack_top,
             {board_reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault, fault}};

#define VTOR ((volatile uint32_t *)0xE000ED08u)
#define CPACR ((volatile uint32_t *)0xE000ED88u)

/* Sets up what C relies on. */
__attribute__((noinline, used, noreturn)) static void start(void) {
    *VTOR = (uint32_t)&vectors;
#ifdef __ARM_FP
    *CPACR |= 0xFu << 20; /* coprocessors 10 and 11: the floating-point unit */
    __asm__ volatile("dsb\n isb");
#endif
    const uint32_t *from = board_data_load;
    for (uint32_t *to = board_data_start; to < board_data_end;) *to++ = *from++;
    for (uint32_t *to = board_bss_start; to < board_bss_end;) *to++ = 0;
    board_exit(main());
}

__attribute__((naked, noreturn)) void board_reset(void) {
    /* The whole stack is painted before anything is on it; MSPLIM turns an overflow into a fault. */
    __asm__ volatile("ldr r0, =board_stack_bottom\n"
                     "msr msplim, r0\n"
                     "ldr r1, =board_stack_top\n"
                     "mov sp, r1\n"
                     "ldr r2, =%c0\n"
                     "1: cmp r0, r1\n"
                     "bhs 2f\n"
                     "str r2, [r0], #4\n"
                     "b 1b\n"
                     "2: b %c1\n" ::"i"(STACK_PAINT), "i"(start));
}

__attribute__((noreturn)) static void fault(void) {
    board_exit(255);
}
