// Runs a function one instruction at a time, in this process, and notes which cache lines it
// touches: exact, and without the counters that a guest of a cloud does not have.
//
// The processor's trap flag raises SIGTRAP after each instruction; the handler decodes the next one
// and works out its addresses from the saved registers. Counted is memory of the heap and of
// mappings. Not counted: the thread's stack and its thread-local variables, code, and static data
// of the program and of its libraries, as constants and global variables. A gather's lines are not
// known, and it counts as undecoded; a masked load or store counts as a whole one.
//
// One thread at a time; others wait. Signals may come meanwhile: their handlers are not stepped.
// Whoever else raises SIGTRAP meanwhile gets what was there before. x86-64 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/types.h"

namespace millrace::bench {

inline constexpr std::size_t kLineBytes = 64;

/// What one run came to. A line is its address by `kLineBytes`; each stands here once.
struct Footprint {
  std::vector<std::uint64_t> touched;     ///< read or written
  std::vector<std::uint64_t> prefetched;  ///< touched, too, or not
  std::size_t instructions = 0;           ///< a repeated string instruction is one
  std::size_t undecoded = 0;              ///< of them: whose memory is not known
  bool cut = false;                       ///< too long: its end was not followed
};

class Stepper {
 public:
  /// Runs with more instructions, which take seconds to step, or more lines are cut.
  static constexpr std::size_t kMostInstructions = std::size_t{1} << 16;
  static constexpr std::size_t kMostLines = std::size_t{1} << 16;

  /// For the calling thread, whose stack is left out. Errors (failed): another processor, a build
  /// with a sanitizer, whose own accesses would be counted, or no trap comes (as under valgrind).
  static Result<Stepper> create();

  Stepper(Stepper&&) noexcept;
  Stepper& operator=(Stepper&&) noexcept;
  ~Stepper();

  /// Runs `function()`. A few instructions are the stepper's own, the same ones each time.
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
