/* SPDX-License-Identifier: BSD-3-Clause */
/* One compiled model, ready to run: everything it needs is a static buffer of its own. Not re-entrant: one run at a time.
 *
 *     if (openneutron_init() != ENONE) ...
 *     const void *inputs[OPENNEUTRON_INPUT_COUNT] = {...};
 *     void *outputs[OPENNEUTRON_OUTPUT_COUNT] = {...};
 *     NeutronError error = openneutron_run(inputs, outputs);
 *     if (error != ENONE) report(openneutron_error_text(error));
 *
 * Sizes, scales and the model's name are constants in openneutron_model.h, which this file includes. Of a model
 * without inputs, whose results are constants, there is one place for them with nothing in it, since C has no arrays of
 * length 0; openneutron_run then takes NULL too. */
#ifndef OPENNEUTRON_H
#define OPENNEUTRON_H

#include <stdbool.h>
#include <stdint.h>

#include "NeutronErrors.h"
#include "openneutron_model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    OPENNEUTRON_BOOL,
    OPENNEUTRON_INT8,
    OPENNEUTRON_UINT8,
    OPENNEUTRON_INT16,
    OPENNEUTRON_INT32,
    OPENNEUTRON_INT64,
    OPENNEUTRON_FLOAT32
} OpenNeutronType;

/* A tensor that openneutron_run takes or gives. Its elements lie in memory in the order of its dimensions
 * order[0] (outermost) to order[rank - 1]: 0, 1, 2, 3 is the order in which the shape is written (NCHW for an image of
 * PyTorch's), 0, 2, 3, 1 has the channels innermost (NHWC). real = scale * (stored - zero_point); a scale of 0 says that
 * the values are not quantized. */
typedef struct {
    const char *name;
    OpenNeutronType type;
    uint32_t size_bytes;
    uint32_t elements;
    uint32_t rank;
    uint32_t shape[OPENNEUTRON_MAX_RANK];
    uint8_t order[OPENNEUTRON_MAX_RANK];
    float scale;
    int32_t zero_point;
    int32_t least; /* what quantizing saturates at */
    int32_t most;
} OpenNeutronTensor;

extern const OpenNeutronTensor openneutron_inputs[OPENNEUTRON_INPUT_PLACES];
extern const OpenNeutronTensor openneutron_outputs[OPENNEUTRON_OUTPUT_COUNT];

/* Starts the driver and checks the model's programs. Call it once, before all else; ENONE, or what is wrong. */
NeutronError openneutron_init(void);

/* Runs the model. inputs[i] are openneutron_inputs[i].size_bytes to read, outputs[i] as many to write; their memory is
 * the caller's. No alignment is asked for. ENONE, or what is wrong (then the outputs are undefined). */
NeutronError openneutron_run(const void *const inputs[OPENNEUTRON_INPUT_PLACES],
                             void *const outputs[OPENNEUTRON_OUTPUT_COUNT]);

/* Sets what the model keeps from run to run (OPENNEUTRON_STATE_BYTES of it, such as the last frames of a stream) to its value
 * before the first run. A model without state has nothing to set. ENEUTRON_STATE before openneutron_init, ENEUTRON_RUNNING in the
 * middle of a run. */
NeutronError openneutron_reset(void);

/* The kernel calls of a program's last run: NeutronEvent records (NeutronDriver.h) in OPENNEUTRON_PROFILE_BYTES, those that
 * are not used all zeros. program: from 0 to OPENNEUTRON_CALL_COUNT - 1. NULL where the model was compiled without profiling. */
const void *openneutron_profile_events(uint32_t program);

/* The checksum of a program's microcode, by which `openneutron profile --from` knows the build; 0 where there is no such
 * program. */
uint32_t openneutron_program_checksum(uint32_t program);

/* An error in words; static text. */
const char *openneutron_error_text(NeutronError error);

/* Real values to an int8 or int16 input, element by element (the order in memory stays), exactly as ExecuTorch's
 * quantize_per_tensor rounds: value * (1 / scale) in float, to the nearest integer, halves to the even one, plus the zero
 * point. What lies outside saturates; NaN becomes the least value. False where the input is no quantized int8 or int16 tensor. */
bool openneutron_quantize_input(uint32_t index, const float *values, void *stored);

/* An int8 or int16 output to real values, element by element. False where the output is no quantized tensor of these types. */
bool openneutron_dequantize_output(uint32_t index, const void *stored, float *values);

/* Elements from the order in which a shape is written (NCHW) to the one that openneutron_run takes. element_bytes: the
 * type's, or sizeof(float) before quantizing. Memory must not overlap. A plain copy where the orders are the same. */
void openneutron_arrange_input(uint32_t index, const void *as_written, void *as_run, uint32_t element_bytes);

/* Elements of an output from the order that openneutron_run gives to the one in which its shape is written. */
void openneutron_arrange_output(uint32_t index, const void *as_run, void *as_written, uint32_t element_bytes);

#ifdef __cplusplus
}
#endif

#endif
