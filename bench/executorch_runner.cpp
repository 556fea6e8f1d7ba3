// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the method forward of a .pte once to warm up and then `runs` times, on inputs of zeros, and asks the system for the parent process
// before and after: count_instructions.c prints the number of instructions there. The further arguments are the sizes of the inputs in bytes.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include <executorch/extension/data_loader/buffer_data_loader.h>

extern "C" {
uint32_t neutronMethodOpen(const void* data, size_t size, const char* name, void** result);
uint32_t neutronMethodSetInput(void* handle, size_t index, void* data, size_t size);
uint32_t neutronMethodRun(void* handle);
}

int main(int count, char** words) {
  if (count < 3) {
    return 2;
  }
  std::ifstream file(words[1], std::ios::binary);
  const std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const long runs = std::atol(words[2]);
  void* method = nullptr;
  const uint32_t opened = neutronMethodOpen(data.data(), data.size(), "forward", &method);
  if (opened != 0) {
    std::fprintf(stderr, "open: 0x%x\n", opened);
    return 1;
  }
  std::vector<std::vector<uint8_t>> inputs;
  for (int word = 3; word < count; ++word) {
    inputs.emplace_back(static_cast<size_t>(std::atol(words[word])));
  }
  for (long run = -1; run < runs; ++run) {
    if (run == 0) {
      syscall(SYS_getppid);
    }
    for (size_t index = 0; index < inputs.size(); ++index) {
      if (neutronMethodSetInput(method, index, inputs[index].data(), inputs[index].size()) != 0) {
        return 1;
      }
    }
    const uint32_t status = neutronMethodRun(method);
    if (status != 0) {
      std::fprintf(stderr, "run: 0x%x\n", status);
      return 1;
    }
  }
  syscall(SYS_getppid);
  return 0;
}
