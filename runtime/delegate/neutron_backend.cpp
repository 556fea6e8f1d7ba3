// SPDX-License-Identifier: BSD-3-Clause
//
// The ExecuTorch delegate: backend id NeutronBackend. This is the one file to compile; its headers are beside it.
//
// The application calls neutronInit before it loads a program. Compile-time switches, named as in ExecuTorch's NXP delegate:
//   NO_HEAP_USAGE=1          the driver was built alike: its context comes from the runtime allocator
//   NEUTRON_NPU_POWER_GATING the NPU is resumed before each run and suspended after it, also where the run fails
//   ET_EVENT_TRACER_ENABLED  programs compiled with profiling log their kernel calls
// and ours:
//   NEUTRON_QUEUE            runs go through the driver's queue, so that threads share one NPU; see neutronSetQueue
//   NEUTRON_CHECK_WEIGHTS    init compares the weights' checksum too
//   NEUTRON_TIMEOUT_SECONDS  how long a run may take where the application does not say so: 60; 0 is for ever
//   NEUTRON_THREADS          the driver was built alike: threads of the host's port compute each kernel call together
//   NEUTRON_JOBS             the host's port is linked: NXP's driver computes the matrix products of programs that have some
// The application says so with the runtime spec timeout_seconds (an int), which ExecuTorch hands to init: see
// LoadBackendOptionsMap. Ports without a clock have no time-out. The runtime spec threads (an int), or else the environment variable
// OPENNEUTRON_THREADS, is the number of threads: 1 where there is neither.
// Constants are fetched to a prefetch buffer wherever the program asks for one (there is no EXTERNAL_MEM switch); what
// copies them is set with neutronSetConfig.

#include <cinttypes>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/platform/log.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"
#include "payload.h"
#include "profile.h"
#include "tensors.h"
#ifdef NEUTRON_JOBS
#include "host_jobs.h"
#endif
#ifdef NEUTRON_THREADS
#include "host_threads.h"
#endif

#if __has_include(<executorch/runtime/backend/backend_options_map.h>)
#define NEUTRON_RUNTIME_SPECS // releases whose init context carries the application's options
#endif

#ifndef NEUTRON_TIMEOUT_SECONDS
#define NEUTRON_TIMEOUT_SECONDS 60
#endif

#if defined(NEUTRON_QUEUE) && defined(NEUTRON_NPU_POWER_GATING)
#error "NEUTRON_NPU_POWER_GATING and NEUTRON_QUEUE exclude each other: the end of a run would suspend the next run of the queue."
#endif

namespace openneutron {
namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::Backend;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Span;

struct Model {
  Payload payload;
  NeutronModelHandle handle = NEUTRON_INVALID_HANDLE;
  const NeutronHeader* header = nullptr;
  const NeutronBinding* bindings = nullptr;
#ifdef NEUTRON_JOBS
  void* shared = nullptr; // weights and scratch of a program with matrix products on the NPU
  uint8_t* scratch = nullptr; // in `shared`
#endif
#ifdef ET_EVENT_TRACER_ENABLED
  OperatorFacts facts;
#endif
};

void log_driver(const char* step, NeutronError error, uint32_t detail) {
  if (getNeutronErrorCause(error) == ENEUTRON_KERNEL) {
    const char* name = neutronErrorKernelName(error);
    ET_LOG(
        Error,
        "NeutronBackend: %s failed with 0x%" PRIx32 ": %s %s (%" PRIu32 ") is not registered: link the kernel selection "
        "of this model.", step, static_cast<uint32_t>(error),
        isNeutronErrorOfVariant(error) ? "a variant that the model calls of kernel" : "kernel",
        name != nullptr ? name : "of an unknown name", getNeutronErrorKernel(error));
    return;
  }
  ET_LOG(
      Error, "NeutronBackend: %s failed with 0x%" PRIx32 " (%s, detail 0x%" PRIx32 "): %s.", step,
      static_cast<uint32_t>(error), getNeutronErrorCategory(error), detail, neutronErrorText(error));
}

// A number that the application chose, from `least` up, or `otherwise`. `wanted` states in words what the number must be.
Result<uint32_t> runtime_spec(
    const BackendInitContext& context,
    const char* name,
    int least,
    uint32_t otherwise,
    const char* wanted) {
#ifdef NEUTRON_RUNTIME_SPECS
  const Result<int> chosen = context.get_runtime_spec<int>(name);
  if (chosen.error() != Error::NotFound) {
    ET_CHECK_OR_RETURN_ERROR(
        chosen.ok() && *chosen >= least, InvalidArgument,
        "NeutronBackend: the runtime spec %s must be %s.", name, wanted);
    return static_cast<uint32_t>(*chosen);
  }
#else
  (void)context, (void)name, (void)least, (void)wanted;
#endif
  return otherwise;
}

Result<uint32_t> timeout_seconds(const BackendInitContext& context) {
  return runtime_spec(
      context, "timeout_seconds", 0, static_cast<uint32_t>(NEUTRON_TIMEOUT_SECONDS), "a number of seconds, 0 or more");
}

Error check_program(const Payload& payload, const NeutronModelConfig& config) {
  uint32_t detail = 0;
  const NeutronError error = neutronModelCheck(&config, payload.microcode_space, payload.weights_space, &detail);
  if (error != ENONE) {
    log_driver("validation of the program", error, detail);
    return Error::InvalidProgram;
  }
  const auto* header = static_cast<const NeutronHeader*>(config.microcode);
  ET_CHECK_OR_RETURN_ERROR(
      header->input_count == payload.inputs && header->output_count == payload.outputs, InvalidProgram,
      "NeutronBackend: the payload has %d inputs and %d outputs, its microcode %" PRIu32 " and %" PRIu32
      ". The file is corrupt.",
      static_cast<int>(payload.inputs), static_cast<int>(payload.outputs), header->input_count, header->output_count);
#ifdef NEUTRON_CHECK_WEIGHTS
  ET_CHECK_OR_RETURN_ERROR(
      checksum(payload.weights, header->weights_size) == header->weights_crc, InvalidProgram,
      "NeutronBackend: the weights' checksum is wrong. The file is corrupt.");
#endif
  return Error::Ok;
}

template <typename T>
T* allocate(BackendExecutionContext& context, size_t count, const char* what) {
  void* memory = context.allocate(count * sizeof(T), kAlignment);
  if (memory == nullptr) {
    ET_LOG(Error, "NeutronBackend: the temporary allocator has no %zu bytes for the %s.", count * sizeof(T), what);
  }
  return static_cast<T*>(memory);
}

// The persistent area, which lasts as long as the method: each loaded method has states of its own.
Error give_state(BackendInitContext& context, const Model& model) {
  const uint32_t size = model.header->state_size;
  if (size == 0) {
    return Error::Ok;
  }
  void* memory = context.get_runtime_allocator()->allocate(size, kAlignment);
  ET_CHECK_OR_RETURN_ERROR(
      memory != nullptr, MemoryAllocationFailed,
      "NeutronBackend: the runtime allocator has no %" PRIu32 " bytes for the states.", size);
  const NeutronError error = neutronSetState(model.handle, memory, size);
  if (error != ENONE) {
    log_driver("setting the states", error, 0);
    return Error::InvalidProgram;
  }
  return Error::Ok;
}

#ifdef NEUTRON_THREADS
Error give_threads(BackendInitContext& context, const Model& model) {
  const char* variable = std::getenv("OPENNEUTRON_THREADS");
  const int common = variable != nullptr ? std::atoi(variable) : 1;
  const uint32_t threads = ET_UNWRAP(
      runtime_spec(context, "threads", 1, common > 0 ? static_cast<uint32_t>(common) : 1u, "a number of threads, 1 or more"));
  const size_t size = neutronGetThreadScratchSize(model.handle);
  void* scratch = nullptr;
  if (threads > 1 && size > 0) {
    scratch = context.get_runtime_allocator()->allocate(size * (threads - 1), kAlignment);
    ET_CHECK_OR_RETURN_ERROR(
        scratch != nullptr, MemoryAllocationFailed,
        "NeutronBackend: the runtime allocator has no %zu bytes for the threads' scratch.", size * (threads - 1));
  }
  const NeutronError error = neutron_host_threads_set(model.handle, threads, scratch, size);
  if (error != ENONE) {
    log_driver("setting the threads", error, 0);
    return Error::MemoryAllocationFailed;
  }
  return Error::Ok;
}
#endif

#ifdef NEUTRON_JOBS
void release(Model& model) {
  neutronModelUnprepare(model.handle);
  neutron_host_jobs_release(model.shared);
  model.shared = nullptr;
}

// A program with matrix products on the NPU has its weights and its scratch in one buffer of NXP's driver.
Error share_memory(Model& model, NeutronModelConfig config) {
  if (!neutronHasJobs(model.handle)) {
    return Error::Ok;
  }
  const size_t weights = model.header->weights_size, page = 4096, start = (weights + page - 1) / page * page;
  NeutronError error = neutron_host_jobs_open();
  if (error == ENONE) {
    model.shared = neutron_host_jobs_allocate(start + model.header->scratch_size + kAlignment);
    error = model.shared != nullptr ? neutron_host_jobs_place(model.shared, config.weights, weights) : ENEUTRON_MEMORY;
  }
  if (error != ENONE) {
    ET_LOG(Error, "NeutronBackend: matrix products: %s.", neutron_host_jobs_problem());
    return error == ENEUTRON_NO_JOBS ? Error::NotFound : Error::MemoryAllocationFailed;
  }
  model.scratch = static_cast<uint8_t*>(model.shared) + start;
  neutronModelUnprepare(model.handle);
  config.weights = model.shared;
  return neutronModelPrepare(&config, &model.handle) == ENONE ? Error::Ok : Error::InvalidState;
}
#else
void release(Model& model) {
  neutronModelUnprepare(model.handle);
}
#endif

class NeutronBackend final : public BackendInterface {
 public:
  bool is_available() const override {
    return true;
  }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed, ArrayRef<CompileSpec>)
      const override {
    void* memory = context.get_runtime_allocator()->allocate(sizeof(Model), alignof(Model));
    ET_CHECK_OR_RETURN_ERROR(
        memory != nullptr, MemoryAllocationFailed,
        "NeutronBackend: no memory for the model's handle.");
    auto* model = new (memory) Model;
    Payload& payload = model->payload;
    ET_CHECK_OK_OR_RETURN_ERROR(parse(static_cast<const uint8_t*>(processed->data()), processed->size(), payload));
    ET_CHECK_OK_OR_RETURN_ERROR(align_blobs(context, payload));
    const uint32_t timeout = ET_UNWRAP(timeout_seconds(context));
    const NeutronModelConfig config = {payload.microcode, payload.weights, nullptr, timeout};
    ET_CHECK_OK_OR_RETURN_ERROR(check_program(payload, config));
#if NO_HEAP_USAGE
    model->handle = context.get_runtime_allocator()->allocate(neutronGetModelContextSize(), kAlignment);
    ET_CHECK_OR_RETURN_ERROR(
        model->handle != nullptr, MemoryAllocationFailed,
        "NeutronBackend: no memory for the driver's context.");
#endif
    const NeutronError error = neutronModelPrepare(&config, &model->handle);
    if (error != ENONE) {
      log_driver("preparation of the program", error, 0);
      return error == ENEUTRON_MEMORY ? Error::MemoryAllocationFailed : Error::InvalidState;
    }
    model->header = static_cast<const NeutronHeader*>(config.microcode);
    model->bindings = reinterpret_cast<const NeutronBinding*>(payload.microcode + 4 * model->header->bindings_offset);
#ifdef NEUTRON_JOBS
    const Error shared = share_memory(*model, config);
    if (shared != Error::Ok) {
      release(*model);
      return shared;
    }
#endif
    const Error state = give_state(context, *model);
    if (state != Error::Ok) {
      release(*model);
      return state;
    }
#ifdef NEUTRON_THREADS
    const Error given = give_threads(context, *model);
    if (given != Error::Ok) {
      release(*model);
      return given;
    }
#endif
#ifdef ET_EVENT_TRACER_ENABLED
    ET_CHECK_OK_OR_RETURN_ERROR(find_facts(context, payload, *model->header, model->facts));
#endif
    return model;
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle, Span<EValue*> args) const override {
    const auto* model = static_cast<const Model*>(handle);
    const Payload& payload = model->payload;
    const size_t wanted = static_cast<size_t>(payload.arguments) + payload.outputs;
    ET_CHECK_OR_RETURN_ERROR(
        args.size() == wanted, InvalidArgument,
        "NeutronBackend: the call has %zu arguments; the program was compiled for %d inputs and %d outputs.",
        args.size(), static_cast<int>(payload.arguments), static_cast<int>(payload.outputs));
    auto** inputs = allocate<const void*>(context, payload.inputs + 1u, "inputs' addresses");
    auto** outputs = allocate<void*>(context, payload.outputs + 3u, "outputs' addresses");
    if (inputs == nullptr || outputs == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    for (size_t i = 0; i < payload.inputs; ++i) {
      ET_CHECK_OK_OR_RETURN_ERROR(take_input(context, *model, i, args, inputs[i]));
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
#ifdef NEUTRON_JOBS
      if (buffer.place == &outputs[payload.outputs] && model->scratch != nullptr) {
        *buffer.place = model->scratch;
        continue;
      }
#endif
      if (buffer.size > 0) {
        *buffer.place = allocate<uint8_t>(context, buffer.size, buffer.what);
        if (*buffer.place == nullptr) {
          return Error::MemoryAllocationFailed;
        }
      }
    }
#ifdef ET_EVENT_TRACER_ENABLED
    RunProfile profile(context, model->facts, header);
    ET_CHECK_OK_OR_RETURN_ERROR(profile.begin(model->handle));
    const Error ran = run(*model, data);
    profile.end(model->handle);
    ET_CHECK_OK_OR_RETURN_ERROR(ran);
    profile.log(static_cast<const uint8_t*>(outputs[payload.outputs + 1]));
#else
    ET_CHECK_OK_OR_RETURN_ERROR(run(*model, data));
#endif
    for (size_t i = 0; i < payload.outputs; ++i) {
      give_output(args[payload.arguments + payload.output_map[i]]->toTensor(), outputs[i]);
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override {
    if (handle != nullptr) {
      release(*static_cast<Model*>(handle));
    }
  }

 private:
  static Error run(const Model& model, const NeutronDataConfig& data) {
#ifdef NEUTRON_NPU_POWER_GATING
    NeutronError error = neutronResume();
    if (error == ENONE) {
      error = neutronRunBlocking(model.handle, &data);
      const NeutronError suspended = neutronSuspend();
      if (suspended != ENONE) { // costs power alone, so that the run's result counts
        log_driver("suspending the NPU", suspended, 0);
      }
    }
#elif defined(NEUTRON_QUEUE)
    const NeutronError error = neutronRunQueued(model.handle, &data);
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
    ET_CHECK_OR_RETURN_ERROR(
        argument.isTensor(), InvalidArgument,
        "NeutronBackend: %s %zu is not a tensor.", port.what, port.index);
    return check_tensor(port, argument.toTensor());
  }

  static Error take_input(
      BackendExecutionContext& context,
      const Model& model,
      size_t index,
      Span<EValue*> args,
      const void*& place) {
    const Payload& payload = model.payload;
    const Port port = {"input", index, payload.input_formats[index], model.bindings[index].size};
    const EValue& argument = *args[payload.input_map[index]];
    if (port.format == kLeading) {
      return take_leading(context, port, argument, place);
    }
    if (port.format == kSpan) {
      const size_t leading = leading_input(payload.input_formats, payload.inputs);
      return take_span(context, port, argument, *args[payload.input_map[leading]], place);
    }
    const Passing passing = ET_UNWRAP(check_argument(port, argument));
    const Tensor& tensor = argument.toTensor();
    place = tensor.const_data_ptr();
    if (passing == Passing::kTransposed) {
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

  // The elements that the caller has, and zeros up to the size of the program's input.
  static Error take_leading(
      BackendExecutionContext& context,
      const Port& port,
      const EValue& argument,
      const void*& place) {
    ET_CHECK_OR_RETURN_ERROR(
        argument.isTensor(), InvalidArgument,
        "NeutronBackend: %s %zu is not a tensor.", port.what, port.index);
    const Tensor& tensor = argument.toTensor();
    ET_CHECK_OK_OR_RETURN_ERROR(check_leading(port, tensor));
    place = tensor.const_data_ptr();
    const size_t size = tensor.nbytes();
    if (size < port.size) {
      auto* copy = allocate<uint8_t>(context, port.size, "input of fewer elements");
      if (copy == nullptr) {
        return Error::MemoryAllocationFailed;
      }
      std::memcpy(copy, place, size);
      std::memset(copy + size, 0, port.size - size);
      place = copy;
    }
    return Error::Ok;
  }

  // The caller's number, and the number of elements of the tensor `counted`.
  static Error take_span(
      BackendExecutionContext& context,
      const Port& port,
      const EValue& argument,
      const EValue& counted,
      const void*& place) {
    ET_CHECK_OR_RETURN_ERROR(
        argument.isTensor() && counted.isTensor(), InvalidArgument,
        "NeutronBackend: %s %zu, or the input that it counts, is not a tensor.", port.what, port.index);
    const Tensor& tensor = argument.toTensor();
    ET_CHECK_OK_OR_RETURN_ERROR(check_place(port, tensor));
    auto* span = allocate<int64_t>(context, 2, "place and number of elements");
    if (span == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    std::memcpy(span, tensor.const_data_ptr(), sizeof *span);
    span[1] = static_cast<int64_t>(counted.toTensor().numel());
    place = span;
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
    const Passing passing = ET_UNWRAP(check_argument(port, argument));
    place = argument.toTensor().mutable_data_ptr();
    if (passing == Passing::kTransposed) {
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
