/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SCHEMA_GENERATED_H
#define SCHEMA_GENERATED_H

namespace tflite {
struct Model;
const Model *GetModel(const void *data);
} // namespace tflite

#endif
