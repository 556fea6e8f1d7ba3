/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MICRO_MUTABLE_OP_RESOLVER_H
#define MICRO_MUTABLE_OP_RESOLVER_H

namespace tflite {
class MicroOpResolver {};

template <unsigned count>
class MicroMutableOpResolver : public MicroOpResolver {
public:
    int AddConv2D();
    int AddMaxPool2D();
    int AddFullyConnected();
    int AddSoftmax();
};
} // namespace tflite

#endif
