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

#if OPENNEUTRON_PROFILED
/* QEMU does not count cycles. Under `-icount shift=0` an instruction takes a nanosecond of mps2-an505's time, which timer 1 of
 * the dual timer counts at 20 MHz (Arm DDI 0479, dual timer; DAI 0505, clocks). YOUR CHIP: leave this out. */
#define TIMER_LOAD ((volatile uint32_t *)0x50002000u)
#define TIMER_VALUE ((volatile uint32_t *)0x50002004u)
#define TIMER_CONTROL ((volatile uint32_t *)0x50002008u)
#define TIMER_ENABLE (1u << 7)
#define TIMER_32_BITS (1u << 1)
#define INSTRUCTIONS_PER_TICK 50u

static uint32_t now_instructions(void) { return (UINT32_MAX - *TIMER_VALUE) * INSTRUCTIONS_PER_TICK; }

static const char *counter = "cycles";

const char *board_counter(void) { return counter; }

static const NeutronPort *profiling_port(void) {
    static const NeutronPort instructions = {.now_cycles = now_instructions};
    const NeutronPort *port = neutron_cortex_m33_port();
    if (port->now_cycles == NULL) {
        counter = "modelled cycles";
        return port;
    }
    const uint32_t first = port->now_cycles();
    for (uint32_t i = 0; i < 100; ++i) {
        if (port->now_cycles() != first) return port;
    }
    counter = "instructions";
    *TIMER_CONTROL = TIMER_32_BITS;
    *TIMER_LOAD = UINT32_MAX;
    *TIMER_CONTROL = TIMER_ENABLE | TIMER_32_BITS;
    return &instructions;
}
#endif

void board_init(void) {
    /* YOUR CHIP: clocks, power, a UART, and a port with a clock, where runs shall have time-outs. */
#if OPENNEUTRON_PROFILED
    neutronSetPort(profiling_port());
#elif defined(BOARD_CLOCK_HZ)
    neutronSetPort(neutron_cortex_m33_clocked_port(BOARD_CLOCK_HZ));
#else
    neutronSetPort(neutron_cortex_m33_port());
#endif
}

void board_print(const char *text) { semihost(SYS_WRITE0, text); }

uint32_t board_stack_used(void) {
    const uint32_t *word = board_stack_bottom;
    while (word < board_stack_top && *word == STACK_PAINT) ++word;
    return (uint32_t)((uintptr_t)board_stack_top - (uintptr_t)word);
}

__attribute__((noreturn)) void board_exit(int code) {
    const uint32_t reason[2] = {ADP_STOPPED_APPLICATION_EXIT, (uint32_t)code};
    semihost(SYS_EXIT_EXTENDED, reason);
    for (;;) {
    }
}
