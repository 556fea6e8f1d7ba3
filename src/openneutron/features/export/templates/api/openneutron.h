/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled models on a core that runs their kernels. C99, without a heap; of a C library it needs memcpy and memset.
 *
 * Each model of this folder has a header of its own, here kws_model.h:
 *
 *     static kws_instance kws;
 *     if (kws_init(&kws, openneutron_arena, sizeof openneutron_arena) != ENONE) ...
 *     memcpy(kws_input(&kws, 0), features, KWS_INPUT0_BYTES);
 *     if (kws_invoke(&kws) == ENONE) use(kws_output(&kws, 0));
 *
 * An instance has all that its model keeps between two runs. The arena is needed during a run alone, so that instances which do not run
 * at the same time may share one. Different instances may run in different threads at the same time, each with its own arena. */
#ifndef OPENNEUTRON_H
#define OPENNEUTRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "NeutronErrors.h"

#if UINTPTR_MAX < 0xFFFFFFFFu
#error "OpenNeutron needs addresses of 32 bits or more"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "OpenNeutron needs a little-endian core"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define OPENNEUTRON_ALIGNMENT 16u
/* Comes before a declaration: memory for an arena, aligned as openneutron_init asks for. */
#define OPENNEUTRON_ALIGNED __attribute__((aligned(16)))

typedef enum {
    OPENNEUTRON_BOOL,
    OPENNEUTRON_INT8,
    OPENNEUTRON_UINT8,
    OPENNEUTRON_INT16,
    OPENNEUTRON_INT32,
    OPENNEUTRON_INT64,
    OPENNEUTRON_FLOAT32
} OpenNeutronType;

/* An input or output. Its elements are in memory in the order of its dimensions order[0] (outermost) to order[rank - 1]: 0, 1, 2, 3 is
 * the order in which the shape is written (NCHW for an image of PyTorch's), 0, 2, 3, 1 has the channels innermost (NHWC).
 * real = scale * (stored - zero_point). A scale of 0: the values are not quantized. */
typedef struct {
    const char *name;
    OpenNeutronType type;
    uint32_t size_bytes;
    uint32_t elements;
    uint32_t rank;
    const uint32_t *shape;
    const uint8_t *order;
    float scale;
    int32_t zero_point;
    int32_t least; /* quantizing saturates at these two */
    int32_t most;
    uint32_t arena; /* the tensor's place: the index of an arena, and the offset in it */
    uint32_t arena_offset;
} OpenNeutronTensor;

/* A program's argument: an input or output of the model by its index, or the offset of a tensor between programs in the
 * last arena. */
typedef enum { OPENNEUTRON_FROM_INPUT, OPENNEUTRON_FROM_OUTPUT, OPENNEUTRON_FROM_ARENA } OpenNeutronWhere;
typedef struct {
    OpenNeutronWhere where;
    uint32_t index;
} OpenNeutronPlace;

/* A call of a program, with its arguments. */
typedef struct {
    const void *microcode;
    const void *weights;
    const OpenNeutronPlace *inputs;
    const OpenNeutronPlace *outputs;
    uint32_t input_count;
    uint32_t output_count;
} OpenNeutronCall;

/* A model uses one arena, or one for each memory region of its chip, such as tightly coupled memory, SRAM and PSRAM. */
#define OPENNEUTRON_MAX_ARENAS 2

/* A model: constants, which stay in flash. work_bytes is the part of each arena without the inputs and outputs behind it. */
typedef struct {
    const char *name;
    const OpenNeutronTensor *inputs;
    const OpenNeutronTensor *outputs;
    const OpenNeutronCall *calls;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t call_count;
    uint32_t arena_count;
    uint32_t arena_bytes[OPENNEUTRON_MAX_ARENAS];
    uint32_t work_bytes[OPENNEUTRON_MAX_ARENAS];
    uint32_t prefetch_offset; /* of the prefetch buffer in the last arena */
    uint32_t profile_bytes;   /* for each call; 0: the model was compiled without profiling */
} OpenNeutronModel;

/* The memory of an arena. */
typedef struct {
    void *address;
    size_t size_bytes;
} OpenNeutronMemory;

/* The driver's data about a program. */
typedef struct {
#ifdef NEUTRON_THREADS
    void *words[16];
#else
    void *words[8];
#endif
} OpenNeutronContext;

/* The part of an instance that all models have. The rest is in the type NAME_instance of the model's header. */
typedef struct {
    const OpenNeutronModel *model; /* NULL before openneutron_init, and where it failed */
    uint8_t *arenas[OPENNEUTRON_MAX_ARENAS]; /* the last one several times where the model uses fewer */
    void **inputs;
    void **outputs;
    const void **taken; /* the arguments of the call that runs */
    void **given;
    OpenNeutronContext *contexts;
    uint8_t *state;
    uint8_t *profile;
} OpenNeutronInstance;

/* NAME_init of a model's header calls this function. memory has arena_count arenas, with 16-byte alignment (ENEUTRON_ALIGNMENT) and at
 * least arena_bytes (ENEUTRON_MEMORY). Arenas of work_bytes are enough for an application that gives each input and output its memory
 * with openneutron_set_input and openneutron_set_output; where both sizes are equal, all inputs and outputs are in the working memory.
 * The first call turns the driver on: no other thread may be in the driver. Later calls may come from any thread. */
NeutronError openneutron_init(OpenNeutronInstance *instance, const OpenNeutronModel *model, const OpenNeutronMemory *memory);

/* Runs the model. The inputs have to be written before each run, since a run may use their memory. After an error the outputs are
 * undefined. ENEUTRON_STATE before openneutron_init. */
NeutronError openneutron_invoke(OpenNeutronInstance *instance);

/* The memory of an input or output; NULL where there is no such tensor. Runs of other instances in the same arena overwrite it. */
void *openneutron_input(const OpenNeutronInstance *instance, uint32_t index);
const void *openneutron_output(const OpenNeutronInstance *instance, uint32_t index);

/* Sets the memory of an input or output to memory of the application: size_bytes of the tensor, at any address, which runs read or
 * write in place. False where there is no such tensor. */
bool openneutron_set_input(OpenNeutronInstance *instance, uint32_t index, const void *memory);
bool openneutron_set_output(OpenNeutronInstance *instance, uint32_t index, void *memory);

/* Sets what the model keeps from run to run (NAME_STATE_BYTES, such as the last frames of a stream) to its value before the first run.
 * A model without state has nothing to set. ENEUTRON_STATE before openneutron_init, ENEUTRON_RUNNING in the middle of a run. */
NeutronError openneutron_reset(OpenNeutronInstance *instance);

#ifdef NEUTRON_THREADS /* Linux; the library and its application are built alike */
/* Lets `count` threads compute each kernel call of an instance together, the caller's among them. No bit of a result depends on it. The
 * threads are one pool for all instances. scratch: (count - 1) times scratch_bytes, aligned as an arena, valid as long as the instance is
 * used, where scratch_bytes is at least openneutron_thread_scratch_bytes; NULL: calls that need it are not divided. ENEUTRON_MEMORY: a
 * thread cannot be started. */
NeutronError openneutron_set_threads(OpenNeutronInstance *instance, uint32_t count, void *scratch, size_t scratch_bytes);
size_t openneutron_thread_scratch_bytes(OpenNeutronInstance *instance);
#endif

/* The kernel calls of a program's last run: NeutronEvent records (NeutronDriver.h) in profile_bytes, those that are not used all zeros.
 * program: from 0 to call_count - 1. NULL where the model was compiled without profiling. */
const void *openneutron_profile_events(const OpenNeutronInstance *instance, uint32_t program);

/* The checksum of a program's microcode, by which `openneutron profile --from` knows the build; 0 where there is no such program. */
uint32_t openneutron_program_checksum(const OpenNeutronModel *model, uint32_t program);

/* An error in words; static text. */
const char *openneutron_error_text(NeutronError error);

/* Real values to stored ones, element by element (the order in memory stays), exactly as ExecuTorch's quantize_per_tensor rounds:
 * value * (1 / scale) in float, to the nearest integer, halves to the even one, plus the zero point. Values outside the range saturate;
 * NaN becomes the least value. False where the tensor is NULL or no quantized int8 or int16 tensor. */
bool openneutron_quantize(const OpenNeutronTensor *tensor, const float *values, void *stored);

/* Stored values to real ones, element by element. False where the tensor is NULL or no quantized int8 or int16 tensor. */
bool openneutron_dequantize(const OpenNeutronTensor *tensor, const void *stored, float *values);

/* Elements from the order in which a shape is written (NCHW) to the tensor's order in memory, and back. element_bytes: the type's, or
 * sizeof(float) for real values. The memory of both must not overlap. A plain copy where the orders are the same. */
void openneutron_to_memory_order(const OpenNeutronTensor *tensor, const void *written, void *in_memory, uint32_t element_bytes);
void openneutron_from_memory_order(const OpenNeutronTensor *tensor, const void *in_memory, void *written, uint32_t element_bytes);

#ifdef __cplusplus
}
#endif

#endif
