/* SPDX-License-Identifier: BSD-3-Clause */
//
// The delegate's payload (docs/microcode.md): counts, formats, maps and version, one byte each; then microcode, weights and
// kernels, each padded to 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/log.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"

namespace openneutron {

using executorch::runtime::BackendInitContext;
using executorch::runtime::Error;

constexpr size_t kAlignment = NEUTRON_ALIGNMENT;
constexpr uint8_t kPayloadVersion = 1;
constexpr uint8_t kChannelsLast = 1;
constexpr uint8_t kLeading = 2; // an input of as many elements as the caller has; the rest of the program's input is zero
constexpr uint8_t kSpan = 3; // an input of two int64: the caller's one, and the number of elements of the input that is kLeading

inline size_t aligned(size_t size) {
  return (size + kAlignment - 1) & ~(kAlignment - 1);
}

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
  const uint8_t* kernels = nullptr; // text for profiles, unaligned; NULL where the payload ends before it
  size_t kernels_size = 0;
};

inline uint32_t word_at(const uint8_t* bytes, size_t index) {
  uint32_t word;
  std::memcpy(&word, bytes + 4 * index, sizeof word);
  return word;
}

inline Error refuse_truncated(const char* part, size_t needed, size_t size) {
  ET_LOG(
      Error,
      "NeutronBackend: the payload is %zu bytes; with its %s it has at least %zu. The file is truncated or corrupt.",
      size, part, needed);
  return Error::InvalidProgram;
}

inline Error check_map(const char* what, const uint8_t* map, size_t count, size_t bound) {
  for (size_t i = 0; i < count; ++i) {
    ET_CHECK_OR_RETURN_ERROR(
        map[i] < bound, InvalidProgram,
        "NeutronBackend: the payload maps %s %zu to argument %d; there are %zu. The file is corrupt.",
        what, i, static_cast<int>(map[i]), bound);
    for (size_t j = 0; j < i; ++j) {
      ET_CHECK_OR_RETURN_ERROR(
          map[i] != map[j], InvalidProgram,
          "NeutronBackend: the payload maps %ss %zu and %zu to one argument. The file is corrupt.", what, j, i);
    }
  }
  return Error::Ok;
}

inline Error check_formats(const char* what, const uint8_t* formats, size_t count, uint8_t most) {
  for (size_t i = 0; i < count; ++i) {
    ET_CHECK_OR_RETURN_ERROR(
        formats[i] <= most, InvalidProgram,
        "NeutronBackend: the payload gives %s %zu format %d; 0 to %d are known. Update the backend.",
        what, i, static_cast<int>(formats[i]), static_cast<int>(most));
  }
  return Error::Ok;
}

// The input that is kLeading; `count` where there is none.
inline size_t leading_input(const uint8_t* formats, size_t count) {
  size_t i = 0;
  while (i < count && formats[i] != kLeading) {
    ++i;
  }
  return i;
}

inline Error check_span(const uint8_t* formats, size_t count) {
  const size_t leading = leading_input(formats, count);
  for (size_t i = 0; i < count; ++i) {
    ET_CHECK_OR_RETURN_ERROR(
        formats[i] != kSpan || leading < count, InvalidProgram,
        "NeutronBackend: the payload's input %zu counts the elements of an input that it does not have. The file is corrupt.", i);
    ET_CHECK_OR_RETURN_ERROR(
        formats[i] != kLeading || i == leading, InvalidProgram,
        "NeutronBackend: the payload's inputs %zu and %zu vary both in their number of elements. The file is corrupt.", leading, i);
  }
  return Error::Ok;
}

// Whether another compiler wrote it; asked before anything else of a payload is read, since that may be another thing too.
inline bool is_foreign(const uint8_t* microcode) {
  return word_at(microcode, offsetof(NeutronHeader, magic) / 4) == NEUTRON_MAGIC &&
      word_at(microcode, offsetof(NeutronHeader, format_version) / 4) >> 16 != NEUTRON_FORMAT_VERSION >> 16;
}

inline Error parse(const uint8_t* data, size_t size, Payload& payload) {
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
  payload.microcode = data + aligned(header);
  payload.microcode_space = size - aligned(header);
  ET_CHECK_OR_RETURN_ERROR(
      !is_foreign(payload.microcode), InvalidProgram,
      "NeutronBackend: %s.", neutronErrorText(ENEUTRON_FOREIGN));
  const uint8_t version = data[header - 1];
  ET_CHECK_OR_RETURN_ERROR(
      version == kPayloadVersion, InvalidProgram,
      "NeutronBackend: the payload's version is %d; this backend reads version %d. Update the backend, or compile the model again.",
      static_cast<int>(version), static_cast<int>(kPayloadVersion));
  payload.input_formats = data + 3;
  payload.output_formats = payload.input_formats + payload.inputs;
  payload.input_map = payload.output_formats + payload.outputs;
  payload.output_map = payload.input_map + payload.inputs;
  ET_CHECK_OK_OR_RETURN_ERROR(check_formats("input", payload.input_formats, payload.inputs, kSpan));
  ET_CHECK_OK_OR_RETURN_ERROR(check_formats("output", payload.output_formats, payload.outputs, kChannelsLast));
  ET_CHECK_OK_OR_RETURN_ERROR(check_span(payload.input_formats, payload.inputs));
  ET_CHECK_OK_OR_RETURN_ERROR(check_map("input", payload.input_map, payload.inputs, payload.arguments));
  ET_CHECK_OK_OR_RETURN_ERROR(check_map("output", payload.output_map, payload.outputs, payload.outputs));

  ET_CHECK_OR_RETURN_ERROR(
      word_at(payload.microcode, offsetof(NeutronHeader, magic) / 4) == NEUTRON_MAGIC, InvalidProgram,
      "NeutronBackend: the payload does not contain Neutron microcode.");
  const uint64_t microcode_size = word_at(payload.microcode, offsetof(NeutronHeader, microcode_size) / 4);
  const uint64_t weights_size = word_at(payload.microcode, offsetof(NeutronHeader, weights_size) / 4);
  const uint64_t weights_at = aligned(header) + aligned(microcode_size);
  if (weights_at + weights_size > size) {
    return refuse_truncated("weights", static_cast<size_t>(weights_at + weights_size), size);
  }
  payload.weights = data + weights_at;
  payload.weights_space = size - static_cast<size_t>(weights_at);
  const uint64_t kernels_at = weights_at + aligned(weights_size);
  const uint64_t kernels_size = word_at(payload.microcode, offsetof(NeutronHeader, kernels_size) / 4);
  if (kernels_size > 0 && kernels_at + kernels_size <= size) {
    payload.kernels = data + kernels_at;
    payload.kernels_size = static_cast<size_t>(kernels_size);
  }
  return Error::Ok;
}

// Microcode and weights must have aligned addresses; a payload without is copied.
inline Error align_blobs(BackendInitContext& context, Payload& payload) {
  const auto misaligned = [](const uint8_t* blob) { return reinterpret_cast<uintptr_t>(blob) % kAlignment != 0; };
  if (!misaligned(payload.microcode) && !misaligned(payload.weights)) {
    return Error::Ok;
  }
  const size_t size = payload.microcode_space;
  auto* copy = static_cast<uint8_t*>(context.get_runtime_allocator()->allocate(size, kAlignment));
  ET_CHECK_OR_RETURN_ERROR(
      copy != nullptr, MemoryAllocationFailed,
      "NeutronBackend: no memory for %zu bytes of an unaligned payload.", size);
  std::memcpy(copy, payload.microcode, size);
  payload.weights = copy + (payload.weights - payload.microcode);
  payload.microcode = copy;
  return Error::Ok;
}

#ifdef NEUTRON_CHECK_WEIGHTS
// CRC-32 as zlib computes it, eight bytes of table for each of four bits.
inline uint32_t checksum(const uint8_t* bytes, size_t size) {
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

} // namespace openneutron
