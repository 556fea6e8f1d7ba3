/* SPDX-License-Identifier: BSD-3-Clause */
#include "board.h"

#include <string.h>

extern uint8_t stack_top, bss_start, bss_end;
/* Numbers of boards.py. */
extern const uint8_t code_origin[], code_length[], data_origin[], data_length[], large_origin[], large_length[];
extern const uint8_t board_timer[], board_counts_up[], board_traps_unaligned[];

/* The number of a symbol, which may be 0, though a compiler knows that no object has that address. */
static uint32_t number(const uint8_t *symbol) {
    __asm("" : "+r"(symbol));
    return (uint32_t)(uintptr_t)symbol;
}
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

/* Armv7-M and Armv8-M Architecture Reference Manuals (DDI 0403, DDI 0553): the system control space. */
#define CFSR ((const volatile uint32_t *)0xE000ED28u)
#define MMFAR ((const volatile uint32_t *)0xE000ED34u)
#define BFAR ((const volatile uint32_t *)0xE000ED38u)

static void print_word(const char *name, uint32_t word) {
    char text[] = " 00000000";
    for (int i = 8; i > 0; --i, word >>= 4) text[i] = "0123456789abcdef"[word & 15u];
    board_print(name);
    board_print(text);
}

enum { STACKED_LR = 5, STACKED_PC = 6 };

__attribute__((used, noreturn)) static void report_fault(const uint32_t *frame) {
    print_word("fault: CFSR", *CFSR);
    print_word(", MMFAR", *MMFAR);
    print_word(", BFAR", *BFAR);
    print_word(", PC", frame[STACKED_PC]);
    print_word(", LR", frame[STACKED_LR]);
    board_print("\n");
    board_exit(EXIT_FAULT);
}

#define CCR ((volatile uint32_t *)0xE000ED14u)
#define CCR_UNALIGN_TRP (1u << 3)
#define CPACR ((volatile uint32_t *)0xE000ED88u)
#define CPACR_CP10_CP11 (15u << 20)

static void barrier(void) { __asm volatile("dsb\n\tisb" ::: "memory"); }

__attribute__((naked)) static void fault(void) { __asm volatile("mov r0, sp\n\tb report_fault"); }

void start(void) {
#if defined(__ARM_FEATURE_MVE) || defined(__ARM_FP)
    *CPACR |= CPACR_CP10_CP11; /* vectors are registers of the floating-point unit */
    barrier();
#endif
    if (number(board_traps_unaligned) != 0) *CCR |= CCR_UNALIGN_TRP;
    memset(&bss_start, 0, (size_t)(&bss_end - &bss_start));
    board_exit((uint32_t)main());
}

/* The stack, reset, NMI, and the faults up to SecureFault. */
__attribute__((section(".vectors"), used)) static const void *const vectors[8] = {
    &stack_top,          (const void *)start, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
};

/* ---- the timer: a dual timer (Arm DDI 0479), or the system counter of an SSE-300 (Arm 101773) ---------------------------------- */

#define TIMER(offset) (*(volatile uint32_t *)(number(board_timer) + (offset)))
enum { DUAL_LOAD = 0, DUAL_VALUE = 4, DUAL_CONTROL = 8, DUAL_ENABLE = 1 << 7, DUAL_32_BITS = 1 << 1 };
enum { COUNTER_CONTROL = 0, COUNTER_VALUE = 8, COUNTER_ENABLE = 1 };

void board_timer_start(void) {
    if (number(board_counts_up) != 0) {
        TIMER(COUNTER_CONTROL) = COUNTER_ENABLE;
        return;
    }
    TIMER(DUAL_CONTROL) = DUAL_32_BITS;
    TIMER(DUAL_LOAD) = UINT32_MAX;
    TIMER(DUAL_CONTROL) = DUAL_ENABLE | DUAL_32_BITS;
}

uint32_t board_timer_ticks(void) {
    return number(board_counts_up) != 0 ? TIMER(COUNTER_VALUE) : UINT32_MAX - TIMER(DUAL_VALUE);
}

/* ---- the memory protection unit: regions for all but the flash, nothing behind them ------------------------------------- */

#define MPU_CTRL ((volatile uint32_t *)0xE000ED94u)
#define MPU_RNR ((volatile uint32_t *)0xE000ED98u)
#define MPU_RBAR ((volatile uint32_t *)0xE000ED9Cu)
#define DEVICES_ORIGIN 0x40000000u
#define DEVICES_LENGTH 0x20000000u
enum { ENABLED = 1 };
typedef enum { CODE, DATA, DEVICES } Kind;

#if __ARM_ARCH >= 8
#define MPU_RLAR ((volatile uint32_t *)0xE000EDA0u)
#define MPU_MAIR0 ((volatile uint32_t *)0xE000EDC0u)
#define NORMAL_MEMORY 0x44u /* attribute 0; attribute 1 is device memory */

static void set_region(uint32_t number, Kind kind, uint32_t origin, uint32_t length) {
    enum { READ_WRITE = 0u << 1, READ_ONLY = 2u << 1, NO_EXECUTE = 1u, DEVICE = 1u << 1 };
    *MPU_MAIR0 = NORMAL_MEMORY;
    *MPU_RNR = number;
    *MPU_RBAR = origin | (kind == CODE ? READ_ONLY : READ_WRITE | NO_EXECUTE);
    *MPU_RLAR = (origin + length - 32) | (kind == DEVICES ? DEVICE : 0) | ENABLED;
}
#else
#define MPU_RASR ((volatile uint32_t *)0xE000EDA0u)

/* The length becomes a power of two, and the origin is a multiple of it. */
static void set_region(uint32_t number, Kind kind, uint32_t origin, uint32_t length) {
    enum { READ_WRITE = 3u << 24, READ_ONLY = 6u << 24, NO_EXECUTE = 1u << 28, NORMAL = 1u << 19, DEVICE = 1u << 16 };
    uint32_t bits = 5;
    while (UINT32_C(1) << bits < length) bits++;
    *MPU_RNR = number;
    *MPU_RBAR = origin;
    *MPU_RASR = (kind == CODE ? READ_ONLY : READ_WRITE | NO_EXECUTE) | (kind == DEVICES ? DEVICE : NORMAL) | (bits - 1) << 1 |
                ENABLED;
}
#endif

void board_flash_lock(void) {
    set_region(0, CODE, number(code_origin), number(code_length));
    set_region(1, DATA, number(data_origin), number(data_length));
    set_region(2, DATA, number(large_origin), number(large_length));
    set_region(3, DEVICES, DEVICES_ORIGIN, DEVICES_LENGTH);
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
