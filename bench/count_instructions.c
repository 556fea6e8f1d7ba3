/* SPDX-License-Identifier: BSD-3-Clause */
/* A plugin of QEMU's user mode (TCG plugins, API version 1): each time the guest enters the function at `entry`, the number of
 * instructions that it has executed is written to its variable at `ticks`. Both are addresses of a guest that is not moved. Without
 * them, the number is printed to the standard error each time the guest asks the system for its parent process (getppid of aarch64).
 * With `loads=1` the number is that of the bytes that the guest has loaded.
 * The declarations are those of QEMU's plugin interface, whose header Debian has in no package. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*TranslateCallback)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*ExecuteCallback)(unsigned int cpu, void *user);
typedef void (*MemoryCallback)(unsigned int cpu, uint32_t information, uint64_t address, void *user);
typedef void (*SyscallCallback)(qemu_plugin_id_t id, unsigned int cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                                uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h);
enum { ADD_U64 = 0, NO_REGISTERS = 0, ALL_ACCESSES = 3, GETPPID = 173 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, TranslateCallback callback);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int operation, void *counter, uint64_t value);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, ExecuteCallback callback, int registers, void *user);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t id, SyscallCallback callback);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, MemoryCallback callback, int registers, int accesses, void *user);
bool qemu_plugin_mem_is_store(uint32_t information);
unsigned int qemu_plugin_mem_size_shift(uint32_t information);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t counted, entry;
static bool counts_loads;
static volatile uint32_t *ticks;

static void entered(unsigned int cpu, void *user) {
    (void)cpu;
    (void)user;
    *ticks = (uint32_t)counted;
}

static void loaded(unsigned int cpu, uint32_t information, uint64_t address, void *user) {
    (void)cpu, (void)address, (void)user;
    if (!qemu_plugin_mem_is_store(information)) counted += UINT64_C(1) << qemu_plugin_mem_size_shift(information);
}

static void called(qemu_plugin_id_t id, unsigned int cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                   uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number == GETPPID) fprintf(stderr, "instructions %" PRIu64 "\n", counted);
}

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    if (ticks != NULL && qemu_plugin_tb_vaddr(tb) == entry) qemu_plugin_register_vcpu_tb_exec_cb(tb, entered, NO_REGISTERS, NULL);
    if (!counts_loads) qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &counted, qemu_plugin_tb_n_insns(tb));
    for (size_t i = 0; counts_loads && i < qemu_plugin_tb_n_insns(tb); i++) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), loaded, NO_REGISTERS, ALL_ACCESSES, NULL);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **words);

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **words) {
    (void)info;
    for (int i = 0; i < count; i++) {
        if (strncmp(words[i], "entry=", 6) == 0) entry = strtoull(words[i] + 6, NULL, 16);
        counts_loads = counts_loads || strcmp(words[i], "loads=1") == 0;
        if (strncmp(words[i], "ticks=", 6) == 0) ticks = (uint32_t *)(uintptr_t)strtoull(words[i] + 6, NULL, 16);
    }
    if (entry == 0 || ticks == NULL) qemu_plugin_register_vcpu_syscall_cb(id, called);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    return 0;
}
