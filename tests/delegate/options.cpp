// SPDX-License-Identifier: BSD-3-Clause
//
// The delegate as an application calls it, with a clock and a power switch of the test's:
//
//   options PAYLOAD SECONDS [SPEC [threads]]    one run of `programs.inverted_twice`, whose kernel calls take SECONDS each;
//                                            SPEC is the runtime spec timeout_seconds; or with the fourth argument threads
//
// Prints the results of init and execute, whether the output is right, and what the port's power switch was told.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/platform/runtime.h>

#include "NeutronDriver.h"

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using namespace executorch::runtime;

namespace {

constexpr int kBytes = 90; // of the input and of the output

uint32_t seconds_of_a_call;
uint32_t clock_reads;
std::string switched;

uint32_t now_seconds() {
  return clock_reads++ * seconds_of_a_call; // read at the beginning and before each call
}

void power(bool on) {
  switched += on ? " on" : " off";
}

alignas(16) uint8_t payload[1 << 12];
alignas(16) uint8_t memory[1 << 12];
alignas(16) uint8_t temporary[1 << 12];

} // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    return 2;
  }
  FILE* file = std::fopen(arguments[1], "rb");
  if (file == nullptr) {
    return 2;
  }
  const size_t size = std::fread(payload, 1, sizeof payload, file);
  std::fclose(file);
  seconds_of_a_call = static_cast<uint32_t>(std::atoi(arguments[2]));

  runtime_init();
  NeutronPort port{};
  port.now_seconds = now_seconds;
  port.power = power;
  neutronSetPort(&port);
  neutronInit();
  neutronSuspend();
  switched.clear();

  BackendInterface* backend = get_backend_class("NeutronBackend");
  if (backend == nullptr) {
    return 2;
  }
  BackendOptions<1> options;
  if (count > 3) {
    const int spec = std::atoi(arguments[3]);
    const bool is_time = count < 5;
    if ((is_time ? options.set_option("timeout_seconds", spec) : options.set_option("threads", spec)) != Error::Ok) {
      return 2;
    }
  }
  MemoryAllocator allocator(sizeof memory, memory);
  const auto view = options.view();
  BackendInitContext init(&allocator, nullptr, "forward", nullptr, Span<const BackendOption>(view.data(), view.size()));
  FreeableBuffer processed(payload, size, nullptr);
  const Result<DelegateHandle*> handle = backend->init(init, &processed, ArrayRef<CompileSpec>());
  std::printf("init %d\n", static_cast<int>(handle.error()));
  if (!handle.ok()) {
    return 0;
  }

  alignas(16) uint8_t input[kBytes];
  alignas(16) uint8_t output[kBytes] = {};
  for (int i = 0; i < kBytes; ++i) {
    input[i] = static_cast<uint8_t>(7 * i + 1);
  }
  TensorImpl::SizesType sizes[] = {kBytes};
  TensorImpl::DimOrderType order[] = {0};
  TensorImpl::StridesType strides[] = {1};
  TensorImpl from(ScalarType::Char, 1, sizes, input, order, strides);
  TensorImpl to(ScalarType::Char, 1, sizes, output, order, strides);
  EValue given{Tensor(&from)};
  EValue got{Tensor(&to)};
  EValue* values[] = {&given, &got};
  MemoryAllocator temporaries(sizeof temporary, temporary);
  BackendExecutionContext execution(nullptr, &temporaries, "forward");
  const Error error = backend->execute(execution, *handle, Span<EValue*>(values, 2));
  std::printf("execute %d\n", static_cast<int>(error));
  std::printf("%s\n", std::memcmp(input, output, kBytes) == 0 ? "right" : "not right");
  std::printf("power%s\n", switched.c_str());
  backend->destroy(*handle);
  return 0;
}
