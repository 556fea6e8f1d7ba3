/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs on a board, with the driver as it is built for the chip. Reads cases from the file `cases` and writes what
 * came of each to the file `results`; cases.py writes and reads them, and says what their words mean. */
#include <string.h>

#include "NeutronDriver.h"
#include "board.h"
#include "neutron_isa.h"

enum { FLASH = 1, ASYNCHRONOUS = 2, TRACE = 4, STACK = 8 };

/* One deviation from a proper use of the API each, in the order of cases.Misuse. */
typedef enum {
    PROPER,
    NULL_CONFIG,
    NULL_MICROCODE,
    NULL_WEIGHTS,
    NULL_HANDLE,
    NULL_CONTEXT,
    ODD_MICROCODE,
    ODD_WEIGHTS,
    ODD_CONTEXT,
    NOT_INITIALISED,
    SUSPENDED,
    UNPREPARED,
    NO_HANDLE,
    NULL_DATA,
    NULL_INPUTS,
    NULL_INPUT,
    NULL_OUTPUTS,
    NULL_OUTPUT,
    NULL_SCRATCH,
    NULL_PREFETCH,
    ODD_SCRATCH,
    ODD_PREFETCH
} Misuse;

typedef struct {
    uint32_t flags, misuse, microcode_size, weights_size, input_size, output_size, runs;
} Case;

typedef struct {
    int32_t check;
    uint32_t detail;
    int32_t prepare;
    uint32_t prepare_stack;
} Prepared;

#define CHANNELS 16
typedef struct {
    int32_t error;
    uint32_t stack, ticks, calls, fetched[CHANNELS];
} Ran;

typedef struct {
    uint32_t operator_index, kernel_id, ticks;
} CallTicks;

#ifndef MOST_DATA /* bytes of a run's inputs, and of its outputs */
#define MOST_DATA (1 << 19)
#endif
#define MAX_BINDINGS 16
#define MAX_CALLS 65536u
#define LARGE __attribute__((section(".large"), aligned(16)))
static uint8_t flash[1 << 21] __attribute__((section(".flash"), aligned(16)));
static uint8_t scratch[4 * MOST_DATA] __attribute__((aligned(16))), prefetch[1 << 20] __attribute__((aligned(16)));
LARGE static uint8_t microcode[(1 << 18) + 16], weights[(1 << 23) + 16], inputs[MOST_DATA], outputs[MOST_DATA];
LARGE static uint8_t state[1 << 16] __attribute__((aligned(16)));
LARGE static uint8_t profile[1 << 16], context[256 + 8];
LARGE static CallTicks calls[MAX_CALLS];

static Ran ran;
static uint32_t last_ticks;

#define POISON 0xA5

static void after_call(void *user, uint32_t operator_index, uint32_t kernel_id, uint32_t cycles) {
    const uint32_t now = board_timer_ticks();
    const CallTicks call = {operator_index, kernel_id, now - last_ticks};
    (void)user;
    (void)cycles;
    if (ran.calls < MAX_CALLS) calls[ran.calls++] = call;
    last_ticks = board_timer_ticks();
}

/* ---- a copy engine that alone can read the flash, at once or not before it is waited for --------------------------------- */

static bool asynchronous;
static struct {
    void *destination;
    const void *source;
    uint32_t size;
} pending[CHANNELS][1024];  // a transfer of a tile is a copy for each run of its bytes
static uint32_t pending_count[CHANNELS];

static void transfer(void *destination, const void *source, uint32_t size) {
    board_flash_unlock();
    memcpy(destination, source, size);
    board_flash_lock();
}

static void copy(void *destination, const void *source, uint32_t size, uint32_t channel) {
    ran.fetched[channel] += size;
    if (!asynchronous) {
        transfer(destination, source, size);
        return;
    }
    memset(destination, POISON, size);
    if (pending_count[channel] == sizeof pending[0] / sizeof pending[0][0]) board_exit(1);
    pending[channel][pending_count[channel]].destination = destination;
    pending[channel][pending_count[channel]].source = source;
    pending[channel][pending_count[channel]++].size = size;
}

static void wait(uint32_t channel) {
    for (uint32_t i = 0; i < pending_count[channel]; ++i) {
        transfer(pending[channel][i].destination, pending[channel][i].source, pending[channel][i].size);
    }
    pending_count[channel] = 0;
}

/* ---- one case ----------------------------------------------------------------------------------------------------------- */

static int32_t measured_prepare(void *config, void *handle) { return neutronModelPrepare(config, handle); }
static int32_t measured_run(void *handle, void *data) { return neutronRunBlocking(handle, data); }

static Prepared prepare(const Case *item, NeutronModelHandle *handle) {
    const bool in_flash = (item->flags & FLASH) != 0;
    NeutronModelConfig config = {microcode, in_flash ? flash : weights, NULL, 0};
    NeutronModelHandle *handle_place = handle;
    Prepared prepared = {0};
    *handle = context;
    if (item->misuse == NULL_MICROCODE) config.microcode = NULL;
    if (item->misuse == NULL_WEIGHTS) config.weights = NULL;
    if (item->misuse == NULL_HANDLE) handle_place = NULL;
    if (item->misuse == NULL_CONTEXT) *handle = NULL;
    if (item->misuse == ODD_CONTEXT) *handle = context + 2;
    if (item->misuse == ODD_WEIGHTS) config.weights = weights + 8;
    if (item->misuse == ODD_MICROCODE) config.microcode = memmove(microcode + 8, microcode, item->microcode_size);
    if (item->misuse == NOT_INITIALISED) neutronDeinit();
    const NeutronModelConfig *const given = item->misuse == NULL_CONFIG ? NULL : &config;
    prepared.check = neutronModelCheck(given, item->microcode_size, item->weights_size, &prepared.detail);
    prepared.prepare =
        board_measured(measured_prepare, (void *)(uintptr_t)given, (void *)handle_place, &prepared.prepare_stack);
    if (item->misuse == NOT_INITIALISED) neutronInit();
    return prepared;
}

static void run(const Case *item, NeutronModelHandle handle) {
    static const NeutronTraceConfig trace = {.traceConfig = TRACE_CONFIG_KERNEL_LEVEL, .afterCall = after_call};
    const NeutronHeader *header = (const NeutronHeader *)(const void *)microcode;
    const NeutronBinding *bindings = (const NeutronBinding *)(const void *)(microcode + 4 * header->bindings_offset);
    const void *input_pointers[MAX_BINDINGS];
    void *output_pointers[MAX_BINDINGS + 3] = {NULL};
    if (header->scratch_size > sizeof scratch || header->prefetch_size > sizeof prefetch ||
        header->profile_size > sizeof profile || header->input_count > MAX_BINDINGS ||
        header->output_count > MAX_BINDINGS) {
        board_print("a program is too large for the runner\n");
        board_exit(1);
    }
    for (uint32_t i = 0, at = 0; i < header->input_count; at += bindings[i++].size) input_pointers[i] = inputs + at;
    bindings += header->input_count;
    for (uint32_t i = 0, at = 0; i < header->output_count; at += bindings[i++].size) output_pointers[i] = outputs + at;
    output_pointers[header->output_count] = item->misuse == NULL_SCRATCH  ? NULL
                                            : item->misuse == ODD_SCRATCH ? scratch + 8
                                                                          : scratch;
    output_pointers[header->output_count + 1] = profile;
    if (item->misuse == NULL_INPUT) input_pointers[0] = NULL;
    if (item->misuse == NULL_OUTPUT) output_pointers[0] = NULL;
    NeutronDataConfig data = {input_pointers, output_pointers, NULL, prefetch};
    if (item->misuse == NULL_INPUTS) data.inputs = NULL;
    if (item->misuse == NULL_OUTPUTS) data.outputs = NULL;
    if (item->misuse == NULL_PREFETCH) data.scratchWeights = NULL;
    if (item->misuse == ODD_PREFETCH) data.scratchWeights = prefetch + 8;
    if (item->misuse == SUSPENDED) neutronSuspend();
    if (item->misuse == UNPREPARED) neutronModelUnprepare(handle);
    if (item->misuse == NO_HANDLE) handle = NULL;

    memset(scratch, POISON, header->scratch_size);
    memset(prefetch, POISON, header->prefetch_size);
    memset(outputs, POISON, item->output_size);
    memset(&ran, 0, sizeof ran);
    if ((item->flags & TRACE) != 0) neutronSetTrace(handle, &trace);
    if ((item->flags & FLASH) != 0) board_flash_lock();
    board_timer_start();
    const uint32_t start = last_ticks = board_timer_ticks();
    NeutronDataConfig *const given = item->misuse == NULL_DATA ? NULL : &data;
    if ((item->flags & STACK) != 0) {
        ran.error = board_measured(measured_run, handle, given, &ran.stack);
    } else {
        ran.error = neutronRunBlocking(handle, given);
    }
    ran.ticks = board_timer_ticks() - start;
    board_flash_unlock();
    memset(prefetch, POISON, header->prefetch_size);
    if (item->misuse == SUSPENDED) neutronResume();
}

static void run_case(const Case *item, int32_t cases, int32_t results) {
    static const NeutronConfig engine = {copy, wait}, none = {NULL, NULL};
    NeutronModelHandle handle;
    if (item->microcode_size > sizeof microcode - 16 || item->weights_size > sizeof weights - 16 ||
        ((item->flags & FLASH) != 0 && item->weights_size > sizeof flash) || item->input_size > sizeof inputs ||
        item->output_size > sizeof outputs || neutronGetModelContextSize() > sizeof context - 8) {
        board_print("a case is too large for the runner\n");
        board_exit(1);
    }
    memset(microcode, POISON, sizeof microcode);
    if (!board_read(cases, microcode, item->microcode_size) ||
        !board_read(cases, (item->flags & FLASH) != 0 ? flash : weights, item->weights_size)) {
        board_exit(1);
    }
    asynchronous = (item->flags & ASYNCHRONOUS) != 0;
    neutronSetConfig((item->flags & FLASH) != 0 ? &engine : &none);
    const Prepared prepared = prepare(item, &handle);
    board_write(results, &prepared, sizeof prepared);
    const NeutronHeader *header = (const NeutronHeader *)(const void *)microcode;
    if (prepared.prepare == ENONE && header->state_size > 0 &&
        neutronSetState(handle, state, sizeof state) != ENONE) {
        board_exit(1);
    }
    for (uint32_t i = 0; i < item->runs; ++i) {
        if (!board_read(cases, inputs, item->input_size)) board_exit(1);
        if (prepared.prepare != ENONE) continue;
        run(item, handle);
        board_write(results, &ran, sizeof ran);
        board_write(results, calls, ran.calls * (uint32_t)sizeof calls[0]);
        board_write(results, outputs, item->output_size);
    }
    if (prepared.prepare != ENONE) return;
    const NeutronError unprepared = neutronModelUnprepare(handle);
    if (unprepared != (item->misuse == UNPREPARED ? ENEUTRON_HANDLE : ENONE)) board_exit(1);
}

int main(void);
int main(void) {
    const int32_t cases = board_open("cases", false);
    const int32_t results = board_open("results", true);
    Case item;
    neutronInit();
    while (board_read(cases, &item, sizeof item)) run_case(&item, cases, results);
    return 0;
}
