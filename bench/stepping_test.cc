// Checks footprints of functions with known accesses.
#include "bench/stepping.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <set>
#include <vector>

namespace millrace::bench {
namespace {

/// Memory of 64 lines on the heap, aligned to a line.
class Lines {
 public:
  std::byte* at(std::size_t byte) const { return lines_->data() + byte; }
  /// Returns the numbers, 0 to 63, of this memory's lines that are among `lines` of a footprint.
  /// Other lines of a footprint are the test's own.
  std::set<std::size_t> among(const std::vector<std::uint64_t>& lines) const {
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(lines_->data()) / kLineBytes;
    std::set<std::size_t> mine;
    for (const std::uint64_t line : lines) {
      if (line >= first && line < first + 64) mine.insert(line - first);
    }
    return mine;
  }

 private:
  struct alignas(kLineBytes) Bytes : std::array<std::byte, 64 * kLineBytes> {};
  std::unique_ptr<Bytes> lines_ = std::make_unique<Bytes>();
};

using Set = std::set<std::size_t>;

class Stepping : public testing::Test {
 protected:
  void SetUp() override {
    auto made = Stepper::create();
    // Stepping works neither with sanitizers nor on processors other than x86-64. Where it should
    // work, a failure is a fault.
    if (!made && !made.error().message.contains("single-step"))
      GTEST_SKIP() << made.error().message;
    ASSERT_TRUE(made) << made.error().message;
    stepper_.emplace(std::move(*made));
  }
  template <class Function>
  Footprint follow(Function function) {
    Footprint print = stepper_->follow(function);
    EXPECT_FALSE(print.cut);
    return print;
  }
  /// Returns the touched lines, and expects that everything is decoded and nothing prefetched.
  template <class Function>
  Set touched(Function function) {
    const Footprint print = follow(function);
    EXPECT_EQ(print.undecoded, 0U);
    EXPECT_TRUE(print.prefetched.empty());
    return lines_.among(print.touched);
  }

  std::optional<Stepper> stepper_;
  Lines lines_;
};

template <class T>
T read(const std::byte* at) {
  return *reinterpret_cast<const volatile T*>(at);
}
template <class T>
void write(std::byte* at) {
  *reinterpret_cast<volatile T*>(at) = T{};
}

TEST_F(Stepping, NothingTouchesNothing) {
  const Footprint print = follow([] {});
  EXPECT_TRUE(print.touched.empty());
  EXPECT_TRUE(print.prefetched.empty());
}

TEST_F(Stepping, ReadsAndWrites) {
  EXPECT_EQ(touched([this] { read<char>(lines_.at(0)); }), Set{0});
  EXPECT_EQ(touched([this] { write<char>(lines_.at(127)); }), Set{1});
  EXPECT_EQ(touched([this] {
              for (std::size_t line = 3; line < 40; line += 4) read<int>(lines_.at(64 * line));
            }),
            (Set{3, 7, 11, 15, 19, 23, 27, 31, 35, 39}));
  EXPECT_EQ(touched([this] {
              for (int i = 0; i < 10; ++i) write<int>(lines_.at(64 * 9));
            }),
            Set{9});
}

TEST_F(Stepping, TwoLinesThatOneAccessStraddles) {
  EXPECT_EQ(touched([this] { asm volatile("movq (%0), %%rax" ::"r"(lines_.at(60))
                                          : "rax"); }),
            (Set{0, 1}));
  EXPECT_EQ(touched([this] { asm volatile("movq (%0), %%rax" ::"r"(lines_.at(56))
                                          : "rax"); }),
            Set{0});
}

TEST_F(Stepping, AddressesOfAllParts) {
  const std::uint64_t index = 9;
  EXPECT_EQ(touched([&] {
              asm volatile("movl 64(%0, %1, 8), %%eax" ::"r"(lines_.at(128)), "r"(index) : "rax");
            }),
            Set{4});
  EXPECT_EQ(touched([&] { asm volatile("movb -1(%0), %%al" ::"r"(lines_.at(128))
                                       : "rax"); }),
            Set{1});
  EXPECT_EQ(touched([&] { asm volatile("addl $1, (%0)" ::"r"(lines_.at(640)) : "cc"); }), Set{10});
}

TEST_F(Stepping, AddressesThatAreNoAccess) {
  EXPECT_EQ(touched([this] {
              asm volatile("leaq 64(%0), %%rax; nopw (%0)" ::"r"(lines_.at(0)) : "rax");
            }),
            Set{});
}

TEST_F(Stepping, VectorLoads) {
  EXPECT_EQ(touched([this] { asm volatile("movdqu (%0), %%xmm0" ::"r"(lines_.at(48))
                                          : "xmm0"); }),
            Set{0});
  EXPECT_EQ(touched([this] { asm volatile("movdqu (%0), %%xmm0" ::"r"(lines_.at(49))
                                          : "xmm0"); }),
            (Set{0, 1}));
  if (__builtin_cpu_supports("avx2") == 0) GTEST_SKIP() << "no AVX2 here";
  EXPECT_EQ(touched([this] {
              asm volatile("vmovdqu (%0), %%ymm0; vzeroupper" ::"r"(lines_.at(33)) : "xmm0");
            }),
            (Set{0, 1}));
}

TEST_F(Stepping, Prefetches) {
  const auto print = follow([this] {
    __builtin_prefetch(lines_.at(64));
    __builtin_prefetch(lines_.at(128), 1);
    read<char>(lines_.at(64));
  });
  EXPECT_EQ(lines_.among(print.prefetched), (Set{1, 2}));
  EXPECT_EQ(lines_.among(print.touched), Set{1});
}

TEST_F(Stepping, RepeatedStringInstructions) {
  const auto move = [this](std::size_t from, std::size_t to, std::size_t bytes) {
    const void* source = lines_.at(from);
    void* target = lines_.at(to);
    asm volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(bytes)::"memory");
  };
  const auto few = follow([&] { move(60, 640, 8); });
  const auto many = follow([&] { move(60, 640, 200); });
  const auto none = follow([&] { move(60, 640, 0); });
  EXPECT_EQ(lines_.among(few.touched), (Set{0, 1, 10}));
  EXPECT_EQ(lines_.among(many.touched), (Set{0, 1, 2, 3, 4, 10, 11, 12, 13}));
  EXPECT_EQ(lines_.among(none.touched), Set{});
  EXPECT_EQ(few.instructions, many.instructions);
  EXPECT_EQ(few.instructions, none.instructions);
  EXPECT_EQ(
      touched([this] {
        void* target = lines_.at(248);
        std::size_t count = 24;
        asm volatile("std; rep stosq; cld" : "+D"(target), "+c"(count) : "a"(0) : "memory", "cc");
      }),
      (Set{1, 2, 3}));
}

// A hypervisor that maps a page during the instruction may lose the reason of the trap.
TEST_F(Stepping, RepeatedStoresToPagesThatAreNotMappedYet) {
  constexpr std::size_t kPageBytes = 4096;
  constexpr std::size_t kPages = 64;
  void* const pages = ::mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const Footprint print = follow([pages] {
    void* target = pages;
    std::size_t count = kPages * kPageBytes / 8;
    asm volatile("rep stosq" : "+D"(target), "+c"(count) : "a"(1) : "memory");
  });
  EXPECT_GE(print.touched.size(), kPages * kPageBytes / kLineBytes);
  EXPECT_EQ(print.undecoded, 0U);
  ::munmap(pages, kPages * kPageBytes);
}

TEST_F(Stepping, AComparisonThatEndsEarly) {
  write<char>(lines_.at(100));
  std::memset(lines_.at(0), 1, 100);
  EXPECT_EQ(touched([this] {
              const void* at = lines_.at(0);
              std::size_t most = 1000;
              asm volatile("repne scasb" : "+D"(at), "+c"(most) : "a"(0) : "memory", "cc");
            }),
            (Set{0, 1}));
}

TEST_F(Stepping, GathersAreNotUnderstoodAndSaySo) {
  if (__builtin_cpu_supports("avx2") == 0) GTEST_SKIP() << "no AVX2 here";
  const auto print = follow([this] {
    asm volatile(
        "vpxor %%xmm1, %%xmm1, %%xmm1; vpcmpeqd %%xmm2, %%xmm2, %%xmm2;"
        "vpgatherdd %%xmm2, (%0, %%xmm1, 4), %%xmm0" ::"r"(lines_.at(0))
        : "xmm0", "xmm1", "xmm2");
  });
  EXPECT_EQ(print.undecoded, 1U);
}

volatile int global = 0;

TEST_F(Stepping, LeavesOutStackAndStaticData) {
  thread_local int local = 0;
  const Footprint print = follow([] {
    std::array<volatile char, 1000> here{};
    here[777] = 1;
    global = here[7];
    int* at = &local;
    asm volatile("" : "+r"(at));  // forces an access by address
    *at = 1;
  });
  EXPECT_TRUE(print.touched.empty());
  EXPECT_EQ(print.undecoded, 0U);
}

TEST_F(Stepping, CountsInstructions) {
  const auto one = follow([] { asm volatile("nop"); }).instructions;
  EXPECT_EQ(follow([] { asm volatile("nop; nop; nop; nop"); }).instructions, one + 3);
}

TEST_F(Stepping, WhatIsTooLongIsCutAndEndsWell) {
  volatile std::uint64_t count = 0;
  const Footprint print = stepper_->follow([&] {
    while (count < 2 * Stepper::kMostInstructions) count = count + 1;
  });
  EXPECT_TRUE(print.cut);
  EXPECT_EQ(print.instructions, Stepper::kMostInstructions);
  EXPECT_EQ(count, 2 * Stepper::kMostInstructions);
}

std::uint64_t flags() {
  std::uint64_t value;
  asm volatile("pushfq; popq %0" : "=r"(value));
  return value;
}

int traps = 0;
void count_trap(int) { ++traps; }

TEST_F(Stepping, LeavesTheProcessAsItWas) {
  struct sigaction mine{};
  mine.sa_handler = &count_trap;
  struct sigaction before{};
  ::sigaction(SIGTRAP, &mine, &before);
  sigset_t trap;
  sigemptyset(&trap);
  sigaddset(&trap, SIGTRAP);
  ::pthread_sigmask(SIG_BLOCK, &trap, nullptr);  // stepping works all the same
  EXPECT_EQ(touched([this] { read<char>(lines_.at(0)); }), Set{0});
  EXPECT_THROW(stepper_->follow([] { throw 1; }), int);
  sigset_t blocked;
  ::pthread_sigmask(SIG_UNBLOCK, &trap, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTRAP), 1);
  EXPECT_EQ(flags() & 0x100, 0U);
  EXPECT_EQ(traps, 0);
  ::raise(SIGTRAP);
  EXPECT_EQ(traps, 1);
  // A trap that is not from stepping goes to the previous handler, and ends the stepping.
  const Footprint print = stepper_->follow([] { ::raise(SIGTRAP); });
  EXPECT_TRUE(print.cut);
  EXPECT_EQ(traps, 2);
  ::raise(SIGTRAP);
  EXPECT_EQ(traps, 3);
  ::sigaction(SIGTRAP, &before, nullptr);
}

volatile int alarms = 0;
void on_alarm(int) { alarms = alarms + 1; }

TEST_F(Stepping, OtherSignalsAreNotStepped) {
  struct sigaction mine{};
  mine.sa_handler = &on_alarm;
  struct sigaction before{};
  ::sigaction(SIGALRM, &mine, &before);
  const auto steps = [] {
    for (int i = 0; i < 20'000; ++i) asm volatile("");
  };
  const auto quiet = follow(steps).instructions;
  const itimerval often{{0, 1000}, {0, 1000}};
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const auto disturbed = follow(steps).instructions;
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(alarms, 0);
  EXPECT_EQ(disturbed, quiet);
}

}  // namespace
}  // namespace millrace::bench
