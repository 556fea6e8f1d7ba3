/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "openneutron.h"

/* ---- real and stored values ----------------------------------------------------------------------------------------- */

/* The nearest integer, halves to the even one, of what lies inside 2^23; from there on floats are integers anyway. */
static float nearest(float value) {
    const float integers = 8388608.0f;
    volatile float sum; /* in the precision of a float, whatever the compiler would keep */
    if (!(value > -integers && value < integers)) return value;
    if (value < 0) {
        sum = value - integers;
        return sum + integers;
    }
    sum = value + integers;
    return sum - integers;
}

static bool is_quantized(const OpenNeutronTensor *tensor) {
    if (tensor == NULL || tensor->scale == 0) return false;
    return tensor->type == OPENNEUTRON_INT8 || tensor->type == OPENNEUTRON_INT16;
}

/* Elements of int16 may be at any address, as those of a run. */
static void store(const OpenNeutronTensor *tensor, void *stored, uint32_t place, float value) {
    if (tensor->type == OPENNEUTRON_INT16) {
        const int16_t element = (int16_t)value;
        memcpy((uint8_t *)stored + place * sizeof element, &element, sizeof element);
    } else {
        ((int8_t *)stored)[place] = (int8_t)value;
    }
}

static int32_t load(const OpenNeutronTensor *tensor, const void *stored, uint32_t place) {
    int16_t element;
    if (tensor->type != OPENNEUTRON_INT16) return ((const int8_t *)stored)[place];
    memcpy(&element, (const uint8_t *)stored + place * sizeof element, sizeof element);
    return element;
}

bool openneutron_quantize(const OpenNeutronTensor *tensor, const float *values, void *stored) {
    if (!is_quantized(tensor)) return false;
    const float inverse = 1.0f / tensor->scale;
    const float zero_point = (float)tensor->zero_point;
    const float least = (float)tensor->least;
    const float most = (float)tensor->most;
    for (uint32_t i = 0; i < tensor->elements; ++i) {
        const float result = zero_point + nearest(inverse * values[i]);
        store(tensor, stored, i, !(result > least) ? least : result > most ? most : result);
    }
    return true;
}

bool openneutron_dequantize(const OpenNeutronTensor *tensor, const void *stored, float *values) {
    if (!is_quantized(tensor)) return false;
    for (uint32_t i = 0; i < tensor->elements; ++i) {
        values[i] = (float)(load(tensor, stored, i) - tensor->zero_point) * tensor->scale;
    }
    return true;
}

/* ---- orders in memory ----------------------------------------------------------------------------------------------- */

/* The bytes between two elements along an axis, where the shape is written. */
static uint32_t pitch(const OpenNeutronTensor *tensor, uint32_t axis, uint32_t element_bytes) {
    uint32_t bytes = element_bytes;
    while (++axis < tensor->rank) bytes *= tensor->shape[axis];
    return bytes;
}

/* Where the element of an index in memory is, where the shape is written. */
static uint32_t written_offset(const OpenNeutronTensor *tensor, uint32_t index, uint32_t element_bytes) {
    uint32_t offset = 0;
    for (uint32_t place = tensor->rank; place-- > 0;) {
        const uint32_t axis = tensor->order[place];
        offset += index % tensor->shape[axis] * pitch(tensor, axis, element_bytes);
        index /= tensor->shape[axis];
    }
    return offset;
}

void openneutron_to_memory_order(const OpenNeutronTensor *tensor, const void *written, void *in_memory, uint32_t element_bytes) {
    uint8_t *to = in_memory;
    for (uint32_t i = 0; i < tensor->elements; ++i, to += element_bytes) {
        memcpy(to, (const uint8_t *)written + written_offset(tensor, i, element_bytes), element_bytes);
    }
}

void openneutron_from_memory_order(const OpenNeutronTensor *tensor, const void *in_memory, void *written, uint32_t element_bytes) {
    const uint8_t *from = in_memory;
    for (uint32_t i = 0; i < tensor->elements; ++i, from += element_bytes) {
        memcpy((uint8_t *)written + written_offset(tensor, i, element_bytes), from, element_bytes);
    }
}
