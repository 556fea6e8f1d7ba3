// SPDX-License-Identifier: BSD-3-Clause
//
// A method of an ExecuTorch program, with an interface in C: a process runs a .pte without importing torch for it.
//
// Status: 0, an executorch::runtime::Error, or NEUTRON_METHOD_UNSUPPORTED for a method whose inputs or outputs are not all
// tensors of fixed shape in planned memory; ExecuTorch's own bindings run such a method. The caller keeps the program's bytes
// until neutronMethodClose, and the results of neutronMethodOutput are valid until the next run.

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

namespace {

using executorch::aten::DimOrderType;
using executorch::aten::SizesType;
using executorch::aten::StridesType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::extension::BufferDataLoader;
using executorch::extension::MallocMemoryAllocator;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryManager;
using executorch::runtime::Method;
using executorch::runtime::MethodMeta;
using executorch::runtime::Program;
using executorch::runtime::Result;
using executorch::runtime::Span;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;

constexpr uint32_t NEUTRON_METHOD_UNSUPPORTED = UINT32_MAX;
constexpr size_t kMostAxes = 16;

uint32_t code(Error error) {
  return static_cast<uint32_t>(error);
}

struct Loaded {
  Loaded(const void* data, size_t size) : loader(data, size) {}

  BufferDataLoader loader;
  std::optional<Program> program;
  MallocMemoryAllocator for_method;
  MallocMemoryAllocator for_calls;
  std::vector<std::vector<uint8_t>> planned;
  std::vector<Span<uint8_t>> spans;
  std::optional<HierarchicalAllocator> arena;
  std::optional<MemoryManager> memory;
  std::optional<Method> method; // last: destroyed before the memory that it uses
};

bool runs_here(const MethodMeta& meta) {
  for (size_t index = 0; index < meta.num_inputs(); ++index) {
    const Result<Tag> tag = meta.input_tag(index);
    if (!tag.ok() || *tag != Tag::Tensor) {
      return false;
    }
  }
  for (size_t index = 0; index < meta.num_outputs(); ++index) {
    const Result<Tag> tag = meta.output_tag(index);
    if (!tag.ok() || *tag != Tag::Tensor) {
      return false;
    }
    const Result<TensorInfo> output = meta.output_tensor_meta(index);
    if (!output.ok() || !output->is_memory_planned() || output->sizes().size() > kMostAxes) {
      return false;
    }
  }
  return true;
}

uint32_t load(Loaded& loaded, const char* name) {
  executorch::runtime::runtime_init();
  Result<Program> program = Program::load(&loaded.loader, Program::Verification::InternalConsistency);
  if (!program.ok()) {
    return code(program.error());
  }
  loaded.program.emplace(std::move(*program));
  const Result<MethodMeta> meta = loaded.program->method_meta(name);
  if (!meta.ok()) {
    return code(meta.error());
  }
  if (!runs_here(*meta)) {
    return NEUTRON_METHOD_UNSUPPORTED;
  }
  for (size_t index = 0; index < meta->num_memory_planned_buffers(); ++index) {
    const Result<int64_t> size = meta->memory_planned_buffer_size(index);
    if (!size.ok()) {
      return code(size.error());
    }
    loaded.planned.emplace_back(static_cast<size_t>(*size));
    loaded.spans.emplace_back(loaded.planned.back().data(), loaded.planned.back().size());
  }
  loaded.arena.emplace(Span<Span<uint8_t>>(loaded.spans.data(), loaded.spans.size()));
  loaded.memory.emplace(&loaded.for_method, &*loaded.arena, &loaded.for_calls);
  Result<Method> method = loaded.program->load_method(name, &*loaded.memory);
  if (!method.ok()) {
    return code(method.error());
  }
  loaded.method.emplace(std::move(*method));
  return 0;
}

} // namespace

#define NEUTRON_EXPORTED extern "C" __attribute__((visibility("default")))

// Loads a method of the program in `size` bytes at `data`. The result is null where the status is not 0.
NEUTRON_EXPORTED uint32_t neutronMethodOpen(const void* data, size_t size, const char* name, void** result) {
  *result = nullptr;
  try {
    auto loaded = std::make_unique<Loaded>(data, size);
    const uint32_t status = load(*loaded, name);
    if (status == 0) {
      *result = loaded.release();
    }
    return status;
  } catch (const std::bad_alloc&) {
    return code(Error::MemoryAllocationFailed);
  }
}

// Sets an input; its `size` bytes are in the input's order in memory, and stay until the run has ended.
NEUTRON_EXPORTED uint32_t neutronMethodSetInput(void* handle, size_t index, void* data, size_t size) {
  Method& method = *static_cast<Loaded*>(handle)->method;
  const Result<TensorInfo> wanted = method.method_meta().input_tensor_meta(index);
  if (!wanted.ok()) {
    return code(wanted.error());
  }
  const size_t axes = wanted->sizes().size();
  if (wanted->nbytes() != size || axes > kMostAxes) {
    return code(Error::InvalidArgument);
  }
  SizesType sizes[kMostAxes];
  DimOrderType order[kMostAxes];
  StridesType strides[kMostAxes];
  std::copy(wanted->sizes().begin(), wanted->sizes().end(), sizes);
  std::copy(wanted->dim_order().begin(), wanted->dim_order().end(), order);
  const Error error = executorch::runtime::dim_order_to_stride(sizes, order, axes, strides);
  if (error != Error::Ok) {
    return code(error);
  }
  TensorImpl tensor(wanted->scalar_type(), static_cast<ssize_t>(axes), sizes, data, order, strides);
  return code(method.set_input(EValue(Tensor(&tensor)), index));
}

NEUTRON_EXPORTED uint32_t neutronMethodRun(void* handle) {
  return code(static_cast<Loaded*>(handle)->method->execute());
}

NEUTRON_EXPORTED size_t neutronMethodOutputs(void* handle) {
  return static_cast<Loaded*>(handle)->method->outputs_size();
}

// An output of the last run: its bytes, its ScalarType, and the extents and the order in memory of its axes.
struct NeutronMethodOutput {
  const void* data;
  size_t size;
  int32_t type;
  uint32_t axes;
  int32_t extents[kMostAxes];
  uint8_t order[kMostAxes];
};

NEUTRON_EXPORTED uint32_t neutronMethodOutput(void* handle, size_t index, NeutronMethodOutput* output) {
  const EValue& value = static_cast<Loaded*>(handle)->method->get_output(index);
  if (!value.isTensor() || value.toTensor().dim() > static_cast<ssize_t>(kMostAxes)) {
    return NEUTRON_METHOD_UNSUPPORTED;
  }
  const Tensor tensor = value.toTensor();
  output->data = tensor.const_data_ptr();
  output->size = tensor.nbytes();
  output->type = static_cast<int32_t>(tensor.scalar_type());
  output->axes = static_cast<uint32_t>(tensor.dim());
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), output->extents);
  std::copy(tensor.dim_order().begin(), tensor.dim_order().end(), output->order);
  return 0;
}

NEUTRON_EXPORTED void neutronMethodClose(void* handle) {
  delete static_cast<Loaded*>(handle);
}
