// SPDX-License-Identifier: BSD-3-Clause
//
// The delegate without ExecuTorch's library, for machines that ExecuTorch has no build for: this file has the few functions of
// ExecuTorch's runtime that the delegate calls, and does with the delegate what ExecuTorch's Method does.
//
//   stand_in PAYLOAD INPUT INPUT_SHAPE OUTPUT OUTPUT_SHAPE    one run; shapes of int8 tensors such as 1x3x32x32
//
// The exit code is the executorch::runtime::Error of the step that failed, 0 for none.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/platform/platform.h>

namespace {

const executorch::runtime::Backend* registered = nullptr;

} // namespace

// ---- what ExecuTorch's library has ----------------------------------------------------------------------------------------

namespace executorch {
namespace runtime {

BackendInterface::~BackendInterface() = default;

Error register_backend(const Backend& backend) {
  registered = &backend;
  return Error::Ok;
}

[[noreturn]] void runtime_abort() {
  std::abort();
}

et_timestamp_t pal_current_ticks() {
  return 0;
}

et_tick_ratio_t pal_ticks_to_ns_multiplier() {
  return {1, 1};
}

namespace internal {

et_timestamp_t get_log_timestamp() {
  return 0;
}

void vlogf(LogLevel, et_timestamp_t, const char*, const char*, size_t, const char* format, std::va_list arguments) {
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
}

} // namespace internal

namespace etensor {

TensorImpl::TensorImpl(
    ScalarType type,
    ssize_t dim,
    SizesType* sizes,
    void* data,
    DimOrderType* dim_order,
    StridesType* strides,
    TensorShapeDynamism dynamism,
    DeviceType device_type,
    DeviceIndex device_index)
    : sizes_(sizes),
      dim_order_(dim_order),
      strides_(strides),
      data_(data),
      dim_(dim),
      numel_(1),
      numel_bound_(0),
      type_(type),
      shape_dynamism_(dynamism),
      device_(device_type, device_index) {
  for (ssize_t axis = 0; axis < dim; ++axis) {
    numel_ *= sizes[axis];
  }
  numel_bound_ = static_cast<size_t>(numel_);
}

ssize_t TensorImpl::element_size() const {
  return 1; // int8, which all tensors here are
}

size_t TensorImpl::nbytes() const {
  return static_cast<size_t>(numel_);
}

} // namespace etensor
} // namespace runtime
} // namespace executorch

// ---- a method of one delegate call ----------------------------------------------------------------------------------------

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::MemoryAllocator;
using executorch::runtime::Result;
using executorch::runtime::Span;

constexpr size_t kMemory = size_t{64} << 20;

std::vector<uint8_t> file(const char* path) {
  std::vector<uint8_t> bytes;
  if (FILE* from = std::fopen(path, "rb")) {
    std::fseek(from, 0, SEEK_END);
    bytes.resize(static_cast<size_t>(std::ftell(from)));
    std::rewind(from);
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), from));
    std::fclose(from);
  }
  return bytes;
}

// A contiguous int8 tensor with its memory.
struct Int8Tensor {
  explicit Int8Tensor(const char* shape) {
    char* end = nullptr;
    size_t count = 1;
    for (const char* at = shape; *at != '\0'; at = *end == 'x' ? end + 1 : end) {
      sizes.push_back(static_cast<int32_t>(std::strtol(at, &end, 10)));
      order.push_back(static_cast<uint8_t>(order.size()));
      count *= static_cast<size_t>(sizes.back());
    }
    data.resize(count);
    impl.emplace_back(ScalarType::Char, static_cast<ssize_t>(sizes.size()), sizes.data(), data.data(), order.data());
  }

  std::vector<int32_t> sizes;
  std::vector<uint8_t> order;
  std::vector<uint8_t> data;
  std::vector<TensorImpl> impl;
};

int run(const char* payload_path, Int8Tensor& input, Int8Tensor& output) {
  std::vector<uint8_t> payload = file(payload_path);
  std::vector<uint8_t> for_method(kMemory), for_call(kMemory);
  MemoryAllocator method_allocator(static_cast<uint32_t>(kMemory), for_method.data());
  MemoryAllocator call_allocator(static_cast<uint32_t>(kMemory), for_call.data());
  FreeableBuffer processed(payload.data(), payload.size(), nullptr);
  BackendInitContext init_context(&method_allocator);
  const auto* backend = registered->backend;
  const Result<DelegateHandle*> handle = backend->init(init_context, &processed, {});
  if (!handle.ok()) {
    return static_cast<int>(handle.error());
  }
  EValue input_value{Tensor(&input.impl[0])};
  EValue output_value{Tensor(&output.impl[0])};
  EValue* arguments[] = {&input_value, &output_value};
  BackendExecutionContext context(nullptr, &call_allocator);
  const Error error = backend->execute(context, *handle, Span<EValue*>(arguments, 2));
  backend->destroy(*handle);
  return static_cast<int>(error);
}

} // namespace

extern "C" int neutronInit();

int main(int count, char** arguments) {
  if (count != 6 || registered == nullptr || neutronInit() != 0) {
    return 255;
  }
  Int8Tensor input(arguments[3]), output(arguments[5]);
  std::vector<uint8_t> given = file(arguments[2]);
  if (given.size() != input.data.size()) {
    return 255;
  }
  std::copy(given.begin(), given.end(), input.data.begin());
  const int error = run(arguments[1], input, output);
  FILE* to = std::fopen(arguments[4], "wb");
  if (to == nullptr) {
    return 255;
  }
  std::fwrite(output.data.data(), 1, output.data.size(), to);
  std::fclose(to);
  return error;
}
