// SPDX-License-Identifier: BSD-3-Clause
//
// What ExecuTorch's NXP delegate takes for granted of a driver and of a payload, in our own words: types of structs and
// functions, positions of header words (as numbers, since the delegate has no names for them), and the order of the calls.
//
//   contract PAYLOAD INPUT    one run of the payload's program; prints its output and the events the delegate would report
//
// The delegate's switches: EXTERNAL_MEM, NO_HEAP_USAGE, NEUTRON_NPU_POWER_GATING, NEUTRON_PROFILE.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

#include "NeutronDriver.h"
#include "NeutronErrors.h"

template <typename A, typename B>
constexpr bool same = std::is_same<A, B>::value;

// Structs: every member that the delegate names, and that it fills them by position where it does.
static_assert(same<NeutronModelHandle, void*>, "it comes from an allocator");
static_assert(same<NeutronError, int32_t>, "printed with PRId32");
static_assert(same<decltype(NeutronModelConfig::microcode), const void*>, "");
static_assert(same<decltype(NeutronModelConfig::weights), const void*>, "");
static_assert(same<decltype(NeutronModelConfig::kernels), const void*>, "");
static_assert(same<decltype(NeutronModelConfig::timeoutSeconds), uint32_t>, "");
static_assert(same<decltype(NeutronDataConfig::inputs), const void**>, "");
static_assert(same<decltype(NeutronDataConfig::outputs), void**>, "");
static_assert(same<decltype(NeutronDataConfig::scratch), void*>, "");
static_assert(same<decltype(NeutronDataConfig::scratchWeights), void*>, "");
static_assert(same<decltype(NeutronConfig::copy), void (*)(void*, const void*, uint32_t, uint32_t)>, "");
static_assert(same<decltype(NeutronConfig::wait), void (*)(uint32_t)>, "");
static_assert(same<decltype(NeutronTraceConfig::traceConfig), uint32_t>, "");
static_assert(offsetof(NeutronTraceConfig, traceConfig) == 0, "initialised as the first member");
static_assert(sizeof(NeutronEvent) == 16, "the delegate counts profile_size / 16 events");
static_assert(ENONE == 0, "");
static_assert(NEUTRON_INVALID_HANDLE == nullptr, "");

// Functions, as the public header declares them.
static_assert(same<decltype(&neutronInit), NeutronError (*)()>, "");
static_assert(same<decltype(&neutronDeinit), NeutronError (*)()>, "");
static_assert(same<decltype(&neutronModelPrepare), NeutronError (*)(const NeutronModelConfig*, NeutronModelHandle*)>, "");
static_assert(same<decltype(&neutronModelUnprepare), NeutronError (*)(NeutronModelHandle)>, "");
static_assert(same<decltype(&neutronRunBlocking), NeutronError (*)(NeutronModelHandle, const NeutronDataConfig*)>, "");
static_assert(same<decltype(&neutronGetModelContextSize), size_t (*)()>, "");
static_assert(same<decltype(&neutronSuspend), NeutronError (*)()>, "");
static_assert(same<decltype(&neutronResume), NeutronError (*)()>, "");
static_assert(std::is_invocable_r<NeutronError, decltype(&neutronSetConfig), NeutronConfig*>::value, "");
static_assert(
    std::is_invocable<decltype(&neutronSetTrace), NeutronModelHandle, NeutronTraceConfig*>::value,
    "its result is not used");

namespace {

constexpr uint8_t kCallEnds = 6; // the events that the delegate reports have this stop.opCode

size_t aligned(size_t size) {
  return (size + 15) / 16 * 16;
}

struct alignas(16) Block {
  uint8_t bytes[16];
};

std::vector<Block> room(size_t size) {
  return std::vector<Block>(size / 16 + 1);
}

std::vector<Block> file(const char* path) {
  FILE* from = std::fopen(path, "rb");
  if (from == nullptr) {
    return {};
  }
  std::fseek(from, 0, SEEK_END);
  const size_t size = static_cast<size_t>(std::ftell(from));
  std::rewind(from);
  std::vector<Block> blocks = room(size);
  const size_t got = std::fread(blocks.data(), 1, size, from);
  std::fclose(from);
  return got == size ? blocks : std::vector<Block>();
}

int failed(const char* step, NeutronError error) {
  std::printf("%s: %d %s\n", step, static_cast<int>(error), getNeutronErrorCategory(error));
  return 1;
}

#ifdef EXTERNAL_MEM
void copy(void* to, const void* from, uint32_t size, uint32_t) {
  std::memcpy(to, from, size);
  std::printf("copied %u\n", static_cast<unsigned>(size));
}
void wait(uint32_t) {}
NeutronConfig copying = {copy, wait};
#endif

} // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    return 2;
  }
  std::vector<Block> payload = file(arguments[1]);
  std::vector<Block> input = file(arguments[2]);
  if (payload.empty() || input.empty()) {
    return 2;
  }
  neutronInit();
#ifdef NEUTRON_NPU_POWER_GATING
  neutronSuspend(); // an application that gates keeps the NPU off, and loads models so
#endif
  const auto* bytes = reinterpret_cast<const uint8_t*>(payload.data());
  const size_t inputs_count = bytes[0];
  const size_t outputs_count = bytes[1];
  const size_t header = aligned(4 + 2 * inputs_count + 2 * outputs_count);
  const auto* words = reinterpret_cast<const uint32_t*>(bytes + header);
  const uint8_t version = bytes[3 + 2 * inputs_count + 2 * outputs_count];
  if (version != 1 || words[0] != 0x64434D6E || words[13] != inputs_count || words[14] != outputs_count) {
    return 2;
  }
  NeutronModelConfig config;
  config.timeoutSeconds = 60;
  config.microcode = bytes + header;
  config.weights = bytes + header + aligned(words[6]);
  config.kernels = bytes + header + aligned(words[6]) + aligned(words[7]);
#if (NO_HEAP_USAGE == 0)
  NeutronModelHandle handle = nullptr;
#else
  // ExecuTorch's allocator aligns to a pointer where nothing else is asked of it.
  std::vector<void*> context(neutronGetModelContextSize() / sizeof(void*) + 1);
  NeutronModelHandle handle = context.data();
#endif
  NeutronError error = neutronModelPrepare(&config, &handle);
  if (error != ENONE) {
    return failed("prepare", error);
  }
#ifdef EXTERNAL_MEM
  error = neutronSetConfig(&copying);
  if (error != ENONE) {
    return failed("config", error);
  }
#endif
  std::vector<Block> scratch = room(words[9]);
  std::vector<Block> profile = room(words[10] & 0x7FFFFFFFu);
  std::vector<Block> output = room(1 << 12);
  std::vector<const void*> inputs(inputs_count, input.data());
  std::vector<void*> outputs(outputs_count, output.data());
  outputs.push_back(scratch.data());
  outputs.push_back(profile.data());
  outputs.push_back(words[11] == 0 ? nullptr : scratch.data());
  NeutronDataConfig data;
  data.inputs = inputs.data();
  data.outputs = outputs.data();
  data.scratch = reinterpret_cast<void*>(1); // the delegate leaves it undefined
  data.scratchWeights = reinterpret_cast<void*>(1); // as without EXTERNAL_MEM
#ifdef EXTERNAL_MEM
  std::vector<Block> prefetch = room(words[12]);
  data.scratchWeights = prefetch.data();
#endif
#ifdef NEUTRON_PROFILE
  NeutronTraceConfig trace{};
  trace.traceConfig = 0;
  neutronSetTrace(handle, &trace);
#endif
#ifdef NEUTRON_NPU_POWER_GATING
  error = neutronResume();
  if (error != ENONE) {
    return failed("resume", error);
  }
#endif
  const NeutronError result = neutronRunBlocking(handle, &data);
#ifdef NEUTRON_NPU_POWER_GATING
  error = neutronSuspend();
  if (error != ENONE) {
    return failed("suspend", error);
  }
#endif
  if (result != ENONE) {
    return failed("run", result);
  }
  const auto* events = reinterpret_cast<const NeutronEvent*>(profile.data());
  for (uint32_t i = 0; i < words[10] / 16; ++i) {
    if (events[i].stop.opCode == kCallEnds) {
      const unsigned start = events[i].start.time;
      std::printf("operator %u: %u to %u\n", events[i].start.functionCode, start, static_cast<unsigned>(events[i].stop.time));
    }
  }
  const auto* got = reinterpret_cast<const uint8_t*>(output.data());
  for (size_t i = 0; i < 16; ++i) {
    std::printf("%02x", got[i]);
  }
  std::printf("\n");
  error = neutronModelUnprepare(handle);
  return error == ENONE && neutronDeinit() == ENONE ? 0 : failed("unprepare", error);
}
