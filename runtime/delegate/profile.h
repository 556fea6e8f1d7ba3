/* SPDX-License-Identifier: BSD-3-Clause */
//
// The events of a profiled run for ExecuTorch's event tracer; nothing without ET_EVENT_TRACER_ENABLED.
//
// A program compiled with profiling has a line for each operator in its kernels blob (src/openneutron/isa/microcode.py): "facts ",
// the layer's name, a tab, JSON. An event is then named "INDEX LAYER", and its metadata are an EventFacts and the JSON. The
// events of other programs have the index and one byte of metadata, the call's number from 1 on, for the viewer of ExecuTorch's
// NXP backend.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/platform.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"
#include "payload.h"

namespace openneutron {

#ifdef ET_EVENT_TRACER_ENABLED

using executorch::runtime::BackendExecutionContext;

constexpr uint8_t kEventFactsVersion = 1;
constexpr size_t kIndexDigits = 11; // of an event's number, and a blank

// The beginning of an event's metadata, little-endian; src/openneutron/features/profile/profile.py reads it.
struct EventFacts {
  uint8_t function_code; // as in the one byte of other programs
  uint8_t version;
  uint16_t kernel;
  uint32_t operator_index;
  uint32_t cycles; // modelled
  uint32_t microcode_crc; // of the program, to tell the events of different programs
  uint64_t host_nanoseconds; // since the call before it, or the start of the run
};
static_assert(sizeof(EventFacts) == 24, "events.py reads 24 bytes");

// A line of an operator. The JSON follows the layer in the payload.
struct FactsLine {
  const char* layer;
  uint32_t layer_size;
  uint32_t json_size;
  const char* json() const {
    return layer + layer_size + 1;
  }
};

struct OperatorFacts {
  const FactsLine* lines = nullptr; // one for each operator, or NULL
  uint32_t longest_layer = 0;
  uint32_t longest_json = 0;
};

// Reads the lines of a program compiled with profiling. A program without them, or with others than its operators', has none.
inline Error find_facts(BackendInitContext& context, const Payload& payload, const NeutronHeader& header, OperatorFacts& facts) {
  constexpr char kMark[] = "facts ";
  constexpr size_t kMarkSize = sizeof kMark - 1;
  if (context.event_tracer() == nullptr || header.profile_size == 0 || payload.kernels == nullptr) {
    return Error::Ok;
  }
  auto* lines = static_cast<FactsLine*>(
      context.get_runtime_allocator()->allocate(header.operator_count * sizeof(FactsLine), alignof(FactsLine)));
  ET_CHECK_OR_RETURN_ERROR(
      lines != nullptr, MemoryAllocationFailed, "NeutronBackend: no memory for the facts of %" PRIu32 " operators.",
      header.operator_count);
  const char* at = reinterpret_cast<const char*>(payload.kernels);
  const char* const end = at + payload.kernels_size;
  uint32_t found = 0;
  while (at < end) {
    const size_t left = static_cast<size_t>(end - at);
    const auto* line_end = static_cast<const char*>(std::memchr(at, '\n', left));
    if (line_end == nullptr) {
      break;
    }
    const size_t size = static_cast<size_t>(line_end - at);
    const auto* tab = static_cast<const char*>(std::memchr(at, '\t', size));
    if (tab != nullptr && size >= kMarkSize && std::memcmp(at, kMark, kMarkSize) == 0 && found < header.operator_count) {
      FactsLine& line = lines[found++];
      line.layer = at + kMarkSize;
      line.layer_size = static_cast<uint32_t>(tab - line.layer);
      line.json_size = static_cast<uint32_t>(line_end - tab - 1);
      facts.longest_layer = line.layer_size > facts.longest_layer ? line.layer_size : facts.longest_layer;
      facts.longest_json = line.json_size > facts.longest_json ? line.json_size : facts.longest_json;
    }
    at = line_end + 1;
  }
  facts.lines = found == header.operator_count ? lines : nullptr;
  return Error::Ok;
}

// A kernel call as the driver's hook sees it.
struct CallNote {
  uint32_t operator_index;
  uint32_t cycles;
  et_timestamp_t stop;
};

// Notes the calls of one run. Without facts or an event tracer it notes nothing.
class RunProfile {
 public:
  RunProfile(BackendExecutionContext& context, const OperatorFacts& facts, const NeutronHeader& header)
      : context_(context), facts_(facts), header_(header) {}

  // Allocates, and has the driver call back.
  Error begin(NeutronModelHandle handle) {
    if (context_.event_tracer() == nullptr || facts_.lines == nullptr) {
      return Error::Ok;
    }
    room_ = header_.profile_size / static_cast<uint32_t>(sizeof(NeutronEvent));
    const size_t name_size = kIndexDigits + facts_.longest_layer + 1;
    notes_ = static_cast<CallNote*>(context_.allocate(room_ * sizeof(CallNote), alignof(CallNote)));
    name_ = static_cast<char*>(context_.allocate(name_size, 1));
    metadata_ = static_cast<uint8_t*>(context_.allocate(sizeof(EventFacts) + facts_.longest_json, 1));
    ET_CHECK_OR_RETURN_ERROR(
        notes_ != nullptr && name_ != nullptr && metadata_ != nullptr, MemoryAllocationFailed,
        "NeutronBackend: the temporary allocator has no memory for the notes of %" PRIu32 " kernel calls.", room_);
    const NeutronTraceConfig trace = {TRACE_CONFIG_KERNEL_LEVEL, nullptr, 0, note, this};
    neutronSetTrace(handle, &trace);
    start_ = executorch::runtime::pal_current_ticks();
    return Error::Ok;
  }

  void end(NeutronModelHandle handle) const {
    if (notes_ != nullptr) {
      neutronSetTrace(handle, nullptr);
    }
  }

  // Logs the events that the driver left in the profile buffer.
  void log(const uint8_t* profile) const {
    if (context_.event_tracer() == nullptr) {
      return;
    }
    et_timestamp_t last = start_;
    for (uint32_t index = 0; index < header_.profile_size / sizeof(NeutronEvent); ++index) {
      NeutronEvent event;
      std::memcpy(&event, profile + index * sizeof event, sizeof event);
      if (event.stop.opCode == 0) { // no kernel has this id: the run made fewer calls
        return;
      }
      if (index < noted_) {
        log_named(index, event, last);
        last = notes_[index].stop;
      } else {
        const auto number = static_cast<uint8_t>(index % UINT8_MAX + 1); // 0 is the end of a run's events in NXP's viewer
        executorch::runtime::event_tracer_log_profiling_delegate(
            context_.event_tracer(), nullptr, index, event.start.time, event.stop.time, &number, sizeof number);
      }
    }
  }

 private:
  static void note(void* user, uint32_t operator_index, uint32_t, uint32_t cycles) {
    auto* self = static_cast<RunProfile*>(user);
    if (self->noted_ < self->room_) {
      self->notes_[self->noted_++] = {operator_index, cycles, executorch::runtime::pal_current_ticks()};
    }
  }

  void log_named(uint32_t index, const NeutronEvent& event, et_timestamp_t last) const {
    const CallNote& call = notes_[index];
    const FactsLine& line = facts_.lines[call.operator_index];
    const auto ratio = executorch::runtime::pal_ticks_to_ns_multiplier();
    const EventFacts head = {
        event.stop.functionCode,
        kEventFactsVersion,
        event.start.opCode,
        call.operator_index,
        call.cycles,
        header_.microcode_crc,
        static_cast<uint64_t>(call.stop - last) * ratio.numerator / ratio.denominator};
    std::memcpy(metadata_, &head, sizeof head);
    std::memcpy(metadata_ + sizeof head, line.json(), line.json_size);
    const int digits = std::snprintf(name_, kIndexDigits + 1, "%" PRIu32 " ", index);
    std::memcpy(name_ + digits, line.layer, line.layer_size);
    name_[static_cast<uint32_t>(digits) + line.layer_size] = '\0';
    executorch::runtime::event_tracer_log_profiling_delegate(
        context_.event_tracer(), name_, static_cast<executorch::runtime::DebugHandle>(-1), event.start.time,
        event.stop.time, metadata_, sizeof head + line.json_size);
  }

  BackendExecutionContext& context_;
  const OperatorFacts& facts_;
  const NeutronHeader& header_;
  CallNote* notes_ = nullptr;
  char* name_ = nullptr;
  uint8_t* metadata_ = nullptr;
  uint32_t room_ = 0;
  uint32_t noted_ = 0;
  et_timestamp_t start_ = 0;
};

#endif // ET_EVENT_TRACER_ENABLED

} // namespace openneutron
