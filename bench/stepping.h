// Runs a function one instruction at a time, in this process, and records which cache lines it
// touches. The result is exact, and needs no performance counters, which virtual machines in clouds
// often lack.
//
// The processor's trap flag raises SIGTRAP after each instruction. The handler decodes the next
// instruction and computes its addresses from the saved registers. Memory of the heap and of
// mappings is counted. The thread's stack and thread-local variables, code, and static data of the
// program and its libraries are not. The lines of a gather instruction are not known: the
// instruction counts as undecoded. A masked load or store counts as one without a mask.
//
// One thread steps at a time; other threads that want to step wait. Handlers of other signals are
// not stepped. A SIGTRAP with another cause goes to the handler that was installed before, and the
// rest of the run is not stepped. x86-64 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/types.h"

namespace millrace::bench {

inline constexpr std::size_t kLineBytes = 64;

/// The result of one run. A line is its address divided by `kLineBytes`; each list has a line once.
struct Footprint {
  std::vector<std::uint64_t> touched;     ///< read or written
  std::vector<std::uint64_t> prefetched;  ///< also lines that were touched
  std::size_t instructions = 0;           ///< a repeated string instruction is one
  std::size_t undecoded = 0;              ///< instructions with an unknown memory operand
  bool cut = false;                       ///< the rest of the run was not stepped
};

class Stepper {
 public:
  /// Limits of a run: beyond the limits the run is not stepped. Each repetition of a string
  /// instruction counts towards the limit of instructions.
  static constexpr std::size_t kMostInstructions = std::size_t{1} << 16;
  static constexpr std::size_t kMostLines = std::size_t{1} << 16;

  /// Makes a stepper for the calling thread, whose stack is not counted. Errors (failed): a
  /// processor other than x86-64; a build with a sanitizer, whose accesses would be counted; a
  /// system that does not trap (as under valgrind).
  static Result<Stepper> create();

  Stepper(Stepper&&) noexcept;
  Stepper& operator=(Stepper&&) noexcept;
  ~Stepper();

  /// Runs `function()` and returns its footprint. A few of the counted instructions are the
  /// stepper's own, the same ones each time.
  template <class Function>
  Footprint follow(Function function) {
    return follow([](void* called) { (*static_cast<Function*>(called))(); }, &function);
  }

 private:
  struct Steps;
  class Handler;
  explicit Stepper(std::unique_ptr<Steps> steps);
  Footprint follow(void (*call)(void*), void* argument);

  std::unique_ptr<Steps> steps_;
};

}  // namespace millrace::bench
