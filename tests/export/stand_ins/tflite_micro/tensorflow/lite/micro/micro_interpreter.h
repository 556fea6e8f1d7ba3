/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for TensorFlow Lite Micro: the declarations that an application uses, without their definitions. */
#ifndef MICRO_INTERPRETER_H
#define MICRO_INTERPRETER_H

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"

enum TfLiteStatus { kTfLiteOk, kTfLiteError };

struct TfLiteTensor {
    union {
        int8_t *int8;
    } data;
    size_t bytes;
};

namespace tflite {
class MicroInterpreter {
public:
    MicroInterpreter(const Model *model, const MicroOpResolver &resolver, uint8_t *arena, size_t arena_bytes);
    TfLiteStatus AllocateTensors();
    TfLiteStatus Invoke();
    TfLiteTensor *input(size_t index);
    TfLiteTensor *output(size_t index);
};
} // namespace tflite

#endif
