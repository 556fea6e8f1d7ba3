/* SPDX-License-Identifier: BSD-3-Clause */
//
// Tensors at the border of a delegate call: contiguous or channels-last, as they are or exchanged on the CPU.
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/platform/log.h>

#include "payload.h"

namespace openneutron {

using executorch::aten::Tensor;
using executorch::runtime::Result;

// Whether a tensor's elements lie in memory as in the other dimension order; dimensions of extent 1 don't matter. Channels
// last is batch, the spatial dimensions, channels, for any rank from 3 up.
inline bool lies_as(const Tensor& tensor, bool channels_last) {
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
inline void exchange(
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
inline Result<Passing> check_tensor(const Port& port, const Tensor& tensor) {
  ET_CHECK_OR_RETURN_ERROR(
      tensor.nbytes() == port.size, InvalidArgument,
      "NeutronBackend: %s %zu has %zu bytes; the program has %" PRIu32
      ". Call the method with the dtypes and shapes it was exported with.",
      port.what, port.index, static_cast<size_t>(tensor.nbytes()), port.size);
  ET_CHECK_OR_RETURN_ERROR(
      port.size == 0 || tensor.const_data_ptr() != nullptr, InvalidArgument,
      "NeutronBackend: %s %zu has no memory.", port.what, port.index);
  const bool channels_last = port.format == kChannelsLast;
  ET_CHECK_OR_RETURN_ERROR(
      !channels_last || tensor.dim() >= 3, InvalidArgument,
      "NeutronBackend: %s %zu is channels-last and has %zd dimensions; that takes at least 3.",
      port.what, port.index, static_cast<ssize_t>(tensor.dim()));
  if (lies_as(tensor, channels_last)) {
    return Passing::kAsIs;
  }
  if (channels_last && lies_as(tensor, false)) {
    return Passing::kTransposed;
  }
  ET_LOG(
      Error, "NeutronBackend: %s %zu has a dim order that is neither %s. Pass a contiguous tensor.", port.what,
      port.index, channels_last ? "channels-last nor contiguous" : "contiguous nor the same in memory");
  return Error::InvalidArgument;
}

// A tensor with as many bytes as the program's input, or fewer.
inline Error check_leading(const Port& port, const Tensor& tensor) {
  ET_CHECK_OR_RETURN_ERROR(
      tensor.nbytes() > 0 && tensor.nbytes() <= port.size, InvalidArgument,
      "NeutronBackend: %s %zu has %zu bytes; the program takes %zu to %" PRIu32 ". Divide the input among several calls.",
      port.what, port.index, static_cast<size_t>(tensor.nbytes()), static_cast<size_t>(tensor.element_size()), port.size);
  ET_CHECK_OR_RETURN_ERROR(
      tensor.const_data_ptr() != nullptr && lies_as(tensor, false), InvalidArgument,
      "NeutronBackend: %s %zu has no memory, or is not contiguous. Pass a contiguous tensor.", port.what, port.index);
  return Error::Ok;
}

// One int64.
inline Error check_place(const Port& port, const Tensor& tensor) {
  ET_CHECK_OR_RETURN_ERROR(
      tensor.nbytes() == sizeof(int64_t) && tensor.element_size() == sizeof(int64_t) &&
          tensor.const_data_ptr() != nullptr && port.size == 2 * sizeof(int64_t),
      InvalidArgument,
      "NeutronBackend: %s %zu has %zu bytes; the program takes one int64.", port.what, port.index,
      static_cast<size_t>(tensor.nbytes()));
  return Error::Ok;
}

struct Axes {
  size_t batches, channels, spatial;
};

inline Axes axes_of(const Tensor& tensor) {
  Axes axes = {static_cast<size_t>(tensor.size(0)), static_cast<size_t>(tensor.size(1)), 1};
  for (ssize_t i = 2; i < tensor.dim(); ++i) {
    axes.spatial *= static_cast<size_t>(tensor.size(i));
  }
  return axes;
}

} // namespace openneutron
