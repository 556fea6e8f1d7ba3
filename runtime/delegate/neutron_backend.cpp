// SPDX-License-Identifier: BSD-3-Clause
//
// The ExecuTorch delegate: backend id NeutronBackend. Payload (docs/microcode.md): counts, formats, maps and version, one
// byte each; then microcode, weights and kernels, each padded to 16 bytes.
//
// The application calls neutronInit before it loads a program. Compile-time switches, named as in ExecuTorch's NXP delegate:
//   NO_HEAP_USAGE            the driver was built with NEUTRON_NO_HEAP: its context comes from the runtime allocator
//   NEUTRON_NPU_POWER_GATING the NPU is resumed before each run and suspended after it
//   ET_EVENT_TRACER_ENABLED  programs compiled with profiling log their kernel calls
// and one of ours:
//   NEUTRON_CHECK_WEIGHTS    init compares the weights' checksum too
// Constants are fetched to a prefetch buffer wherever the program asks for one (there is no EXTERNAL_MEM switch); what
// copies them is set with neutronSetConfig.

#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <new>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/log.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"

namespace openneutron {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::ArrayRef;
using executorch::runtime::Backend;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

constexpr size_t kAlignment = NEUTRON_ALIGNMENT;
constexpr uint8_t kPayloadVersion = 1;
constexpr uint8_t kChannelsLast = 1;
constexpr uint32_t kTimeoutSeconds = 60;

size_t aligned(size_t size) {
  return (size + kAlignment - 1) & ~(kAlignment - 1);
}

// ---- the payload ------------------------------------------------------------------------------------------------------

struct Payload {
  uint8_t inputs = 0;
  uint8_t outputs = 0;
  uint8_t arguments = 0; // input arguments of the delegate call; its outputs follow them
  const uint8_t* input_formats = nullptr;
  const uint8_t* output_formats = nullptr;
  const uint8_t* input_map = nullptr; // the argument that each graph input is
  const uint8_t* output_map = nullptr; // the output argument that each graph output is
  const uint8_t* microcode = nullptr;
  size_t microcode_space = 0; // bytes up to the payload's end
  const uint8_t* weights = nullptr;
  size_t weights_space = 0;
};

uint32_t word_at(const uint8_t* bytes, size_t index) {
  uint32_t word;
  std::memcpy(&word, bytes + 4 * index, sizeof word);
  return word;
}

Error refuse_truncated(const char* part, size_t needed, size_t size) {
  ET_LOG(
      Error,
      "NeutronBackend: the payload is %zu bytes; with its %s it has at least %zu. The file is truncated or corrupt.",
      size,
      part,
      needed);
  return Error::InvalidProgram;
}

Error check_map(const char* what, const uint8_t* map, size_t count, size_t bound) {
  for (size_t i = 0; i < count; ++i) {
    if (map[i] >= bound) {
      ET_LOG(
          Error,
          "NeutronBackend: the payload maps %s %zu to argument %d; there are %zu. The file is corrupt.",
          what,
          i,
          static_cast<int>(map[i]),
          bound);
      return Error::InvalidProgram;
    }
    for (size_t j = 0; j < i; ++j) {
      if (map[i] == map[j]) {
        ET_LOG(Error, "NeutronBackend: the payload maps %ss %zu and %zu to one argument. The file is corrupt.", what, j, i);
        return Error::InvalidProgram;
      }
    }
  }
  return Error::Ok;
}

Error check_formats(const char* what, const uint8_t* formats, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (formats[i] > kChannelsLast) {
      ET_LOG(
          Error,
          "NeutronBackend: the payload gives %s %zu format %d; 0 and 1 are known. Update the backend.",
          what,
          i,
          static_cast<int>(formats[i]));
      return Error::InvalidProgram;
    }
  }
  return Error::Ok;
}

Error parse(const uint8_t* data, size_t size, Payload& payload) {
  if (size < 4) {
    return refuse_truncated("header", 4, size);
  }
  payload.inputs = data[0];
  payload.outputs = data[1];
  payload.arguments = data[2];
  const size_t ports = static_cast<size_t>(payload.inputs) + payload.outputs;
  const size_t header = 4 + 2 * ports;
  const size_t header_end = aligned(header) + sizeof(NeutronHeader);
  if (size < header_end) {
    return refuse_truncated("microcode's header", header_end, size);
  }
  const uint8_t version = data[header - 1];
  if (version != kPayloadVersion) {
    ET_LOG(
        Error,
        "NeutronBackend: the payload's version is %d; this backend reads version %d. Update the backend, or compile the model again.",
        static_cast<int>(version),
        static_cast<int>(kPayloadVersion));
    return Error::InvalidProgram;
  }
  payload.input_formats = data + 3;
  payload.output_formats = payload.input_formats + payload.inputs;
  payload.input_map = payload.output_formats + payload.outputs;
  payload.output_map = payload.input_map + payload.inputs;
  ET_CHECK_OK_OR_RETURN_ERROR(check_formats("input", payload.input_formats, payload.inputs));
  ET_CHECK_OK_OR_RETURN_ERROR(check_formats("output", payload.output_formats, payload.outputs));
  ET_CHECK_OK_OR_RETURN_ERROR(check_map("input", payload.input_map, payload.inputs, payload.arguments));
  ET_CHECK_OK_OR_RETURN_ERROR(check_map("output", payload.output_map, payload.outputs, payload.outputs));

  payload.microcode = data + aligned(header);
  payload.microcode_space = size - aligned(header);
  if (word_at(payload.microcode, offsetof(NeutronHeader, magic) / 4) != NEUTRON_MAGIC) {
    ET_LOG(Error, "NeutronBackend: the payload does not contain Neutron microcode.");
    return Error::InvalidProgram;
  }
  const uint64_t microcode_size = word_at(payload.microcode, offsetof(NeutronHeader, microcode_size) / 4);
  const uint64_t weights_size = word_at(payload.microcode, offsetof(NeutronHeader, weights_size) / 4);
  const uint64_t weights_at = aligned(header) + aligned(microcode_size);
  if (weights_at + weights_size > size) {
    return refuse_truncated("weights", static_cast<size_t>(weights_at + weights_size), size);
  }
  payload.weights = data + weights_at;
  payload.weights_space = size - static_cast<size_t>(weights_at);
  return Error::Ok;
}

#ifdef NEUTRON_CHECK_WEIGHTS
// CRC-32 as zlib computes it, eight bytes of table for each of four bits.
uint32_t checksum(const uint8_t* bytes, size_t size) {
  uint32_t table[256];
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) {
      table[i] = (table[i] & 1u) != 0 ? 0xEDB88320u ^ (table[i] >> 1) : table[i] >> 1;
    }
  }
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < size; ++i) {
    crc = (crc >> 8) ^ table[(crc ^ bytes[i]) & 0xFFu];
  }
  return ~crc;
}
#endif

// ---- tensors ----------------------------------------------------------------------------------------------------------

// Whether a tensor's elements lie in memory as in the other dimension order; dimensions of extent 1 don't matter. Channels
// last is batch, the spatial dimensions, channels, for any rank from 3 up.
bool lies_as(const Tensor& tensor, bool channels_last) {
  const auto order = tensor.dim_order();
  const auto sizes = tensor.sizes();
  const size_t rank = sizes.size();
  size_t position = 0;
  for (size_t i = 0; i < rank; ++i) {
    const size_t wanted = !channels_last || i == 0 ? i : (i + 1 < rank ? i + 1 : 1);
    if (sizes[wanted] == 1) {
      continue;
    }
    while (position < rank && sizes[order[position]] == 1) {
      ++position;
    }
    if (position >= rank || order[position] != wanted) {
      return false;
    }
    ++position;
  }
  return true;
}

// The same bytes with the two inner axes of batches x rows x cols elements exchanged.
void exchange(
    uint8_t* to,
    const uint8_t* from,
    size_t batches,
    size_t rows,
    size_t cols,
    size_t element_bytes) {
  for (size_t n = 0; n < batches; ++n) {
    for (size_t c = 0; c < cols; ++c) {
      const uint8_t* column = from + (n * rows * cols + c) * element_bytes;
      for (size_t r = 0; r < rows; ++r) {
        std::memcpy(to, column + r * cols * element_bytes, element_bytes);
        to += element_bytes;
      }
    }
  }
}

enum class Passing { kAsIs, kTransposed };

struct Port {
  const char* what; // "input" or "output"
  size_t index;
  uint8_t format;
  uint32_t size; // bytes the program reads or writes there
};

// How a tensor gets to or from the program.
Result<Passing> check_tensor(const Port& port, const Tensor& tensor) {
  if (tensor.nbytes() != port.size) {
    ET_LOG(
        Error,
        "NeutronBackend: %s %zu has %zu bytes; the program has %" PRIu32
        ". Call the method with the dtypes and shapes it was exported with.",
        port.what,
        port.index,
        static_cast<size_t>(tensor.nbytes()),
        port.size);
    return Error::InvalidArgument;
  }
  if (port.size > 0 && tensor.const_data_ptr() == nullptr) {
    ET_LOG(Error, "NeutronBackend: %s %zu has no memory.", port.what, port.index);
    return Error::InvalidArgument;
  }
  const bool channels_last = port.format == kChannelsLast;
  if (channels_last && tensor.dim() < 3) {
    ET_LOG(
        Error,
        "NeutronBackend: %s %zu is channels-last and has %zd dimensions; that takes at least 3.",
        port.what,
        port.index,
        static_cast<ssize_t>(tensor.dim()));
    return Error::InvalidArgument;
  }
  if (lies_as(tensor, channels_last)) {
    return Passing::kAsIs;
  }
  if (channels_last && lies_as(tensor, false)) {
    return Passing::kTransposed;
  }
  ET_LOG(
      Error,
      "NeutronBackend: %s %zu has a dim order that is neither %s. Pass a contiguous tensor.",
      port.what,
      port.index,
      channels_last ? "channels-last nor contiguous" : "contiguous nor the same in memory");
  return Error::InvalidArgument;
}

struct Axes {
  size_t batches, channels, spatial;
};

Axes axes_of(const Tensor& tensor) {
  Axes axes = {static_cast<size_t>(tensor.size(0)), static_cast<size_t>(tensor.size(1)), 1};
  for (ssize_t i = 2; i < tensor.dim(); ++i) {
    axes.spatial *= static_cast<size_t>(tensor.size(i));
  }
  return axes;
}

// ---- the backend ------------------------------------------------------------------------------------------------------

struct Model {
  Payload payload;
  NeutronModelHandle handle = NEUTRON_INVALID_HANDLE;
  const NeutronHeader* header = nullptr;
  const NeutronBinding* bindings = nullptr;
};

void log_driver(const char* step, NeutronError error, uint32_t detail) {
  if (getNeutronErrorCause(error) == ENEUTRON_KERNEL) {
    const char* name = neutronErrorKernelName(error);
    ET_LOG(
        Error,
        "NeutronBackend: %s failed with 0x%" PRIx32 ": %s %s (%" PRIu32 ") is not registered: link the kernel selection "
        "of this model.",
        step,
        static_cast<uint32_t>(error),
        isNeutronErrorOfVariant(error) ? "a variant that the model calls of kernel" : "kernel",
        name != nullptr ? name : "of an unknown name",
        getNeutronErrorKernel(error));
    return;
  }
  ET_LOG(
      Error,
      "NeutronBackend: %s failed with 0x%" PRIx32 " (%s, detail 0x%" PRIx32 "): %s.",
      step,
      static_cast<uint32_t>(error),
      getNeutronErrorCategory(error),
      detail,
      neutronErrorText(error));
}

// Microcode and weights must lie at aligned addresses; a payload that does not is copied.
Error align_blobs(BackendInitContext& context, Payload& payload) {
  const auto misaligned = [](const uint8_t* blob) { return reinterpret_cast<uintptr_t>(blob) % kAlignment != 0; };
  if (!misaligned(payload.microcode) && !misaligned(payload.weights)) {
    return Error::Ok;
  }
  const size_t size = payload.microcode_space;
  auto* copy = static_cast<uint8_t*>(context.get_runtime_allocator()->allocate(size, kAlignment));
  if (copy == nullptr) {
    ET_LOG(Error, "NeutronBackend: no memory for %zu bytes of an unaligned payload.", size);
    return Error::MemoryAllocationFailed;
  }
  std::memcpy(copy, payload.microcode, size);
  payload.weights = copy + (payload.weights - payload.microcode);
  payload.microcode = copy;
  return Error::Ok;
}

Error check_program(const Payload& payload, const NeutronModelConfig& config) {
  uint32_t detail = 0;
  const NeutronError error = neutronModelCheck(&config, payload.microcode_space, payload.weights_space, &detail);
  if (error != ENONE) {
    log_driver("validation of the program", error, detail);
    return Error::InvalidProgram;
  }
  const auto* header = static_cast<const NeutronHeader*>(config.microcode);
  if (header->input_count != payload.inputs || header->output_count != payload.outputs) {
    ET_LOG(
        Error,
        "NeutronBackend: the payload has %d inputs and %d outputs, its microcode %" PRIu32 " and %" PRIu32
        ". The file is corrupt.",
        static_cast<int>(payload.inputs),
        static_cast<int>(payload.outputs),
        header->input_count,
        header->output_count);
    return Error::InvalidProgram;
  }
#ifdef NEUTRON_CHECK_WEIGHTS
  if (checksum(payload.weights, header->weights_size) != header->weights_crc) {
    ET_LOG(Error, "NeutronBackend: the weights' checksum is wrong. The file is corrupt.");
    return Error::InvalidProgram;
  }
#endif
  return Error::Ok;
}

void log_events(BackendExecutionContext& context, const uint8_t* profile, uint32_t size) {
#ifdef ET_EVENT_TRACER_ENABLED
  if (context.event_tracer() == nullptr) {
    return;
  }
  for (uint32_t index = 0; index < size / sizeof(NeutronEvent); ++index) {
    NeutronEvent event;
    std::memcpy(&event, profile + index * sizeof event, sizeof event);
    if (event.stop.opCode == 0) { // no kernel has this id: the run made fewer calls
      return;
    }
    executorch::runtime::event_tracer_log_profiling_delegate(
        context.event_tracer(),
        nullptr,
        index,
        event.start.time,
        event.stop.time,
        &event.stop.functionCode,
        sizeof event.stop.functionCode);
  }
#else
  (void)context;
  (void)profile;
  (void)size;
#endif
}

template <typename T>
T* allocate(BackendExecutionContext& context, size_t count, const char* what) {
  void* memory = context.allocate(count * sizeof(T), kAlignment);
  if (memory == nullptr) {
    ET_LOG(Error, "NeutronBackend: the temporary allocator has no %zu bytes for the %s.", count * sizeof(T), what);
  }
  return static_cast<T*>(memory);
}

class NeutronBackend final : public BackendInterface {
 public:
  bool is_available() const override {
    return true;
  }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed, ArrayRef<CompileSpec>)
      const override {
    void* memory = context.get_runtime_allocator()->allocate(sizeof(Model), alignof(Model));
    if (memory == nullptr) {
      ET_LOG(Error, "NeutronBackend: no memory for the model's handle.");
      return Error::MemoryAllocationFailed;
    }
    auto* model = new (memory) Model;
    Payload& payload = model->payload;
    ET_CHECK_OK_OR_RETURN_ERROR(parse(static_cast<const uint8_t*>(processed->data()), processed->size(), payload));
    ET_CHECK_OK_OR_RETURN_ERROR(align_blobs(context, payload));
    const NeutronModelConfig config = {payload.microcode, payload.weights, nullptr, kTimeoutSeconds};
    ET_CHECK_OK_OR_RETURN_ERROR(check_program(payload, config));
#if NO_HEAP_USAGE
    model->handle = context.get_runtime_allocator()->allocate(neutronGetModelContextSize(), kAlignment);
    if (model->handle == nullptr) {
      ET_LOG(Error, "NeutronBackend: no memory for the driver's context.");
      return Error::MemoryAllocationFailed;
    }
#endif
    const NeutronError error = neutronModelPrepare(&config, &model->handle);
    if (error != ENONE) {
      log_driver("preparation of the program", error, 0);
      return error == ENEUTRON_MEMORY ? Error::MemoryAllocationFailed : Error::InvalidState;
    }
    model->header = static_cast<const NeutronHeader*>(config.microcode);
    model->bindings = reinterpret_cast<const NeutronBinding*>(payload.microcode + 4 * model->header->bindings_offset);
    return model;
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle, Span<EValue*> args) const override {
    const auto* model = static_cast<const Model*>(handle);
    const Payload& payload = model->payload;
    const size_t wanted = static_cast<size_t>(payload.arguments) + payload.outputs;
    if (args.size() != wanted) {
      ET_LOG(
          Error,
          "NeutronBackend: the call has %zu arguments; the program was compiled for %d inputs and %d outputs.",
          args.size(),
          static_cast<int>(payload.arguments),
          static_cast<int>(payload.outputs));
      return Error::InvalidArgument;
    }
    auto** inputs = allocate<const void*>(context, payload.inputs + 1u, "inputs' addresses");
    auto** outputs = allocate<void*>(context, payload.outputs + 3u, "outputs' addresses");
    if (inputs == nullptr || outputs == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    for (size_t i = 0; i < payload.inputs; ++i) {
      ET_CHECK_OK_OR_RETURN_ERROR(take_input(context, *model, i, *args[payload.input_map[i]], inputs[i]));
    }
    for (size_t i = 0; i < payload.outputs; ++i) {
      ET_CHECK_OK_OR_RETURN_ERROR(
          place_output(context, *model, i, *args[payload.arguments + payload.output_map[i]], outputs[i]));
    }
    const NeutronHeader& header = *model->header;
    NeutronDataConfig data = {inputs, outputs, nullptr, nullptr};
    const struct {
      uint32_t size;
      const char* what;
      void** place;
    } buffers[] = {
        {header.scratch_size, "scratch buffer", &outputs[payload.outputs]},
        {header.profile_size, "profile buffer", &outputs[payload.outputs + 1]},
        {header.debug_size, "debug buffer", &outputs[payload.outputs + 2]},
        {header.prefetch_size, "prefetch buffer", &data.scratchWeights},
    };
    for (const auto& buffer : buffers) {
      *buffer.place = nullptr;
      if (buffer.size > 0) {
        *buffer.place = allocate<uint8_t>(context, buffer.size, buffer.what);
        if (*buffer.place == nullptr) {
          return Error::MemoryAllocationFailed;
        }
      }
    }
    ET_CHECK_OK_OR_RETURN_ERROR(run(*model, data));
    log_events(context, static_cast<const uint8_t*>(outputs[payload.outputs + 1]), header.profile_size);
    for (size_t i = 0; i < payload.outputs; ++i) {
      give_output(args[payload.arguments + payload.output_map[i]]->toTensor(), outputs[i]);
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override {
    if (handle != nullptr) {
      neutronModelUnprepare(static_cast<Model*>(handle)->handle);
    }
  }

 private:
  static Error run(const Model& model, const NeutronDataConfig& data) {
#ifdef NEUTRON_NPU_POWER_GATING
    NeutronError error = neutronResume();
    if (error == ENONE) {
      error = neutronRunBlocking(model.handle, &data);
      neutronSuspend();
    }
#else
    const NeutronError error = neutronRunBlocking(model.handle, &data);
#endif
    if (error != ENONE) {
      log_driver("the run", error, 0);
      return error == ENEUTRON_STATE ? Error::InvalidState : Error::Internal;
    }
    return Error::Ok;
  }

  static Result<Passing> check_argument(const Port& port, const EValue& argument) {
    if (!argument.isTensor()) {
      ET_LOG(Error, "NeutronBackend: %s %zu is not a tensor.", port.what, port.index);
      return Error::InvalidArgument;
    }
    return check_tensor(port, argument.toTensor());
  }

  static Error take_input(
      BackendExecutionContext& context,
      const Model& model,
      size_t index,
      const EValue& argument,
      const void*& place) {
    const Port port = {"input", index, model.payload.input_formats[index], model.bindings[index].size};
    const Result<Passing> passing = check_argument(port, argument);
    if (!passing.ok()) {
      return passing.error();
    }
    const Tensor& tensor = argument.toTensor();
    place = tensor.const_data_ptr();
    if (*passing == Passing::kTransposed) {
      auto* copy = allocate<uint8_t>(context, port.size, "transposed input");
      if (copy == nullptr) {
        return Error::MemoryAllocationFailed;
      }
      const Axes axes = axes_of(tensor);
      exchange(copy, static_cast<const uint8_t*>(place), axes.batches, axes.channels, axes.spatial, tensor.element_size());
      place = copy;
    }
    return Error::Ok;
  }

  static Error place_output(
      BackendExecutionContext& context,
      const Model& model,
      size_t index,
      const EValue& argument,
      void*& place) {
    const Port port = {
        "output", index, model.payload.output_formats[index], model.bindings[model.payload.inputs + index].size};
    const Result<Passing> passing = check_argument(port, argument);
    if (!passing.ok()) {
      return passing.error();
    }
    place = argument.toTensor().mutable_data_ptr();
    if (*passing == Passing::kTransposed) {
      place = allocate<uint8_t>(context, port.size, "output before its transposition");
      if (place == nullptr) {
        return Error::MemoryAllocationFailed;
      }
    }
    return Error::Ok;
  }

  // An output that was not written in its place was written channels-last.
  static void give_output(const Tensor& tensor, const void* place) {
    if (place == tensor.const_data_ptr()) {
      return;
    }
    const Axes axes = axes_of(tensor);
    exchange(
        static_cast<uint8_t*>(tensor.mutable_data_ptr()),
        static_cast<const uint8_t*>(place),
        axes.batches,
        axes.spatial,
        axes.channels,
        tensor.element_size());
  }
};

NeutronBackend backend;
const Backend registration = {"NeutronBackend", &backend};
const Error registered = executorch::runtime::register_backend(registration);

} // namespace
} // namespace openneutron

// What the registration came to, for the code that loads this library: an executorch::runtime::Error, 0 for none.
extern "C" __attribute__((visibility("default"))) const uint32_t neutronBackendRegistration;
const uint32_t neutronBackendRegistration = static_cast<uint32_t>(openneutron::registered);
