/* SPDX-License-Identifier: BSD-3-Clause */
/* QEMU's mps2-an505, or any Cortex-M33 under a debugger that does semihosting. YOUR CHIP: write these functions for your
 * board; semihosting without a debugger ends in a fault. */
#include "board.h"

#include "cortex_m33_port.h"
#include "startup.h"

/* Arm, "Semihosting for AArch32 and AArch64": operations and reasons. */
#define SYS_WRITE0 0x04u
#define SYS_EXIT_EXTENDED 0x20u
#define ADP_STOPPED_APPLICATION_EXIT 0x20026u

extern uint32_t board_stack_bottom[];
extern uint32_t board_stack_top[];

static void semihost(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

void board_init(void) {
    /* YOUR CHIP: clocks, power, a UART, and a port with a clock, where runs shall have time-outs. */
    neutronSetPort(neutron_cortex_m33_port());
}

void board_print(const char *text) { semihost(SYS_WRITE0, text); }

uint32_t board_stack_used(void) {
    const uint32_t *word = board_stack_bottom;
    while (word < board_stack_top && *word == STACK_PAINT) ++word;
    return (uint32_t)((uintptr_t)board_stack_top - (uintptr_t)word);
}

_Noreturn void board_exit(int code) {
    const uint32_t reason[2] = {ADP_STOPPED_APPLICATION_EXIT, (uint32_t)code};
    semihost(SYS_EXIT_EXTENDED, reason);
    for (;;) {
    }
}
