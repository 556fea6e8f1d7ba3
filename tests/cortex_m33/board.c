/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"

#include <string.h>

extern uint8_t stack_top, bss_start, bss_end;
int main(void);
void start(void);

/* ---- semihosting (Arm, "Semihosting for AArch32 and AArch64") ---------------------------------------------------------- */

enum { SYS_OPEN = 0x01, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT_EXTENDED = 0x20 };
enum { MODE_RB = 1, MODE_WB = 5 };
#define APPLICATION_EXIT 0x20026u

static uint32_t semihosting(uint32_t operation, const void *arguments) {
    register uint32_t r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = arguments;
    __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_exit(uint32_t code) {
    const uint32_t arguments[] = {APPLICATION_EXIT, code};
    for (;;) semihosting(SYS_EXIT_EXTENDED, arguments);
}

void board_print(const char *text) { semihosting(SYS_WRITE0, text); }

int32_t board_open(const char *name, bool to_write) {
    const uint32_t arguments[] = {(uint32_t)(uintptr_t)name, to_write ? MODE_WB : MODE_RB, strlen(name)};
    const int32_t file = (int32_t)semihosting(SYS_OPEN, arguments);
    if (file < 0) board_exit(EXIT_NO_FILE);
    return file;
}

bool board_read(int32_t file, void *bytes, uint32_t size) {
    const uint32_t arguments[] = {(uint32_t)file, (uint32_t)(uintptr_t)bytes, size};
    return size == 0 || semihosting(SYS_READ, arguments) == 0;
}

void board_write(int32_t file, const void *bytes, uint32_t size) {
    const uint32_t arguments[] = {(uint32_t)file, (uint32_t)(uintptr_t)bytes, size};
    if (size != 0 && semihosting(SYS_WRITE, arguments) != 0) board_exit(EXIT_NO_FILE);
}

/* ---- start and faults --------------------------------------------------------------------------------------------------- */

/* Armv8-M Architecture Reference Manual (DDI 0553): the system control space. */
#define CFSR ((const volatile uint32_t *)0xE000ED28u)
#define MMFAR ((const volatile uint32_t *)0xE000ED34u)
#define BFAR ((const volatile uint32_t *)0xE000ED38u)

static void print_word(const char *name, uint32_t word) {
    char text[] = " 00000000";
    for (int i = 8; i > 0; --i, word >>= 4) text[i] = "0123456789abcdef"[word & 15u];
    board_print(name);
    board_print(text);
}

static void fault(void) {
    print_word("fault: CFSR", *CFSR);
    print_word(", MMFAR", *MMFAR);
    print_word(", BFAR", *BFAR);
    board_print("\n");
    board_exit(EXIT_FAULT);
}

void start(void) {
    memset(&bss_start, 0, (size_t)(&bss_end - &bss_start));
    board_exit((uint32_t)main());
}

/* The stack, reset, NMI, and the faults up to SecureFault. */
__attribute__((section(".vectors"), used)) static const void *const vectors[8] = {
    &stack_top,          (const void *)start, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
};

/* ---- the timer: number 1 of the SSE-200's dual timer, at 20 MHz (Arm DDI 0479, dual timer; DAI 0505, clocks) -------------- */

#define TIMER_LOAD ((volatile uint32_t *)0x50002000u)
#define TIMER_VALUE ((volatile uint32_t *)0x50002004u)
#define TIMER_CONTROL ((volatile uint32_t *)0x50002008u)
#define TIMER_ENABLE (1u << 7)
#define TIMER_32_BITS (1u << 1)

void board_timer_start(void) {
    *TIMER_CONTROL = TIMER_32_BITS;
    *TIMER_LOAD = UINT32_MAX;
    *TIMER_CONTROL = TIMER_ENABLE | TIMER_32_BITS;
}

uint32_t board_timer_ticks(void) { return UINT32_MAX - *TIMER_VALUE; }

/* ---- the memory protection unit: regions for all but the flash, nothing behind them ------------------------------------- */

#define MPU_CTRL ((volatile uint32_t *)0xE000ED94u)
#define MPU_RNR ((volatile uint32_t *)0xE000ED98u)
#define MPU_RBAR ((volatile uint32_t *)0xE000ED9Cu)
#define MPU_RLAR ((volatile uint32_t *)0xE000EDA0u)
#define MPU_MAIR0 ((volatile uint32_t *)0xE000EDC0u)
#define NORMAL_MEMORY 0x44u /* attribute 0; attribute 1 is device memory */
enum { READ_WRITE = 0u << 1, READ_ONLY = 2u << 1, NO_EXECUTE = 1u, ENABLED = 1u, DEVICE = 1u << 1 };

static void barrier(void) { __asm volatile("dsb\n\tisb" ::: "memory"); }

void board_flash_lock(void) {
    static const uint32_t regions[][2] = {
        {0x10000000u | READ_ONLY, 0x101FFFE0u | ENABLED},
        {0x38000000u | READ_WRITE | NO_EXECUTE, 0x383FFFE0u | ENABLED},
        {0x40000000u | READ_WRITE | NO_EXECUTE, 0x5FFFFFE0u | DEVICE | ENABLED},
        {0x80000000u | READ_WRITE | NO_EXECUTE, 0x80FFFFE0u | ENABLED},
    };
    *MPU_MAIR0 = NORMAL_MEMORY;
    for (uint32_t i = 0; i < sizeof regions / sizeof regions[0]; ++i) {
        *MPU_RNR = i;
        *MPU_RBAR = regions[i][0];
        *MPU_RLAR = regions[i][1];
    }
    *MPU_CTRL = ENABLED;
    barrier();
}

void board_flash_unlock(void) {
    *MPU_CTRL = 0;
    barrier();
}

/* ---- the stack ---------------------------------------------------------------------------------------------------------- */

#define TEXT(number) WORDS(number)
#define WORDS(number) #number

/* Paints what lies below the stack pointer, calls, and looks for the lowest word that has another colour. */
__asm(".section .text.board_measured, \"ax\", %progbits\n"
      ".syntax unified\n"
      ".thumb_func\n"
      ".global board_measured\n"
      "board_measured:\n"
      "push {r3, r4, r5, r6, r7, lr}\n" /* r3, depth, comes to lie at sp */
      "mov r4, r0\n"
      "ldr r5, =0xDECADE5A\n"
      "ldr r6, =" TEXT(BOARD_PAINTED) "\n"
      "sub r6, sp, r6\n" /* the lowest painted word */
      "mov r7, sp\n"
      "1: str r5, [r7, #-4]!\n"
      "cmp r7, r6\n"
      "bhi 1b\n"
      "mov r0, r1\n"
      "mov r1, r2\n"
      "blx r4\n"
      "2: ldr r1, [r6]\n"
      "cmp r1, r5\n"
      "bne 3f\n"
      "adds r6, #4\n"
      "cmp r6, sp\n"
      "blo 2b\n"
      "3: mov r1, sp\n"
      "subs r1, r1, r6\n"
      "ldr r2, [sp]\n"
      "str r1, [r2]\n"
      "pop {r3, r4, r5, r6, r7, pc}\n"
      ".ltorg\n"
      ".text\n");
