#include "stepping.h"

#include <Zydis/Zydis.h>
#include <link.h>
#include <pthread.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "core/sanitizers.h"

namespace millrace::bench {
namespace {

constexpr greg_t kTrapFlag = 0x100;
constexpr greg_t kDirectionFlag = 0x400;
constexpr auto kRepeats = ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;

/// A set of cache lines, in the order in which they were added. Allocates no memory after its
/// creation, because the signal handler adds lines.
class LineSet {
 public:
  explicit LineSet(std::size_t most) : slots_(std::bit_ceil(2 * most)) { lines_.reserve(most); }

  /// Adds a line. Returns false if the line is new and the set is full.
  bool add(std::uint64_t line) {
    std::size_t at = place_of(line);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at] == line) return true;
    }
    if (lines_.size() == lines_.capacity()) return false;
    slots_[at] = line;  // never 0: nothing is mapped at address 0
    lines_.push_back(line);
    return true;
  }
  void clear() {
    for (const std::uint64_t line : lines_) {
      for (std::size_t at = place_of(line); slots_[at] != 0; at = (at + 1) & (slots_.size() - 1))
        slots_[at] = 0;
    }
    lines_.clear();
  }
  const std::vector<std::uint64_t>& lines() const { return lines_; }

 private:
  std::size_t place_of(std::uint64_t line) const {
    return (line * 0x9e3779b97f4a7c15 >> 32) & (slots_.size() - 1);
  }

  std::vector<std::uint64_t> slots_;  // 0: empty
  std::vector<std::uint64_t> lines_;
};

struct Range {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

/// Adds the ranges of a loaded object: code, data and thread-local variables. Called by
/// `dl_iterate_phdr`.
int add_object(dl_phdr_info* object, std::size_t, void* all) {
  auto& ranges = *static_cast<std::vector<Range>*>(all);
  Range range{UINT64_MAX, 0};
  for (const auto& part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (part.p_type == PT_TLS && object->dlpi_tls_data != nullptr) {
      const auto from = reinterpret_cast<std::uint64_t>(object->dlpi_tls_data);
      ranges.push_back({from, from + part.p_memsz});
    }
    if (part.p_type != PT_LOAD) continue;
    const std::uint64_t from = object->dlpi_addr + part.p_vaddr;
    range = {std::min(range.from, from), std::max(range.to, from + part.p_memsz)};
  }
  if (range.from < range.to) ranges.push_back(range);
  return 0;
}

/// Returns the memory that is not counted, sorted by address: this thread's stack and thread-local
/// variables, code and static data.
std::vector<Range> not_counted() {
  std::vector<Range> ranges;
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
    void* lowest = nullptr;
    std::size_t bytes = 0;
    ::pthread_attr_getstack(&attributes, &lowest, &bytes);
    ::pthread_attr_destroy(&attributes);
    const auto from = reinterpret_cast<std::uint64_t>(lowest);
    ranges.push_back({from, from + bytes});
  }
  ::dl_iterate_phdr(&add_object, &ranges);
  std::ranges::sort(ranges, {}, &Range::from);
  return ranges;
}

/// Sets the processor's trap flag for the object's lifetime, in which instructions are stepped.
class TrapFlag {
 public:
  // Pushes below the red zone, in which the compiler may keep values. The first trap follows the
  // last `lea`.
  [[gnu::always_inline]] TrapFlag() {
    asm volatile(
        "lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
            : "memory", "cc");
  }
  [[gnu::always_inline]] ~TrapFlag() {
    asm volatile(
        "lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
            : "memory", "cc");
  }
  TrapFlag(const TrapFlag&) = delete;
  TrapFlag& operator=(const TrapFlag&) = delete;
};

bool is_prefetch(ZydisMnemonic mnemonic) {
  return mnemonic >= ZYDIS_MNEMONIC_PREFETCH && mnemonic <= ZYDIS_MNEMONIC_PREFETCHWT1;
}

/// Returns the 64-bit value of a general register, also if `name` is its lower half of 32 bits; 0
/// for no register, none for any other register.
std::optional<std::uint64_t> value_of(ZydisRegister name, const greg_t* registers) {
  constexpr std::array kPlaces{REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
  if (name == ZYDIS_REGISTER_NONE) return 0;
  const ZydisRegisterClass kind = ZydisRegisterGetClass(name);
  if (kind != ZYDIS_REGCLASS_GPR64 && kind != ZYDIS_REGCLASS_GPR32) return std::nullopt;
  const std::size_t number = static_cast<unsigned char>(ZydisRegisterGetId(name));
  return static_cast<std::uint64_t>(registers[kPlaces[number]]);
}

/// Returns the address of an operand, or none if a part of the address is not known.
std::optional<std::uint64_t> address_of(const ZydisDecodedInstruction& instruction,
                                        const ZydisDecodedOperandMem& operand,
                                        const greg_t* registers) {
  if (operand.type != ZYDIS_MEMOP_TYPE_MEM) return std::nullopt;
  std::uint64_t address =
      operand.disp.has_displacement ? static_cast<std::uint64_t>(operand.disp.value) : 0;
  if (operand.base == ZYDIS_REGISTER_RIP) {  // RIP holds the address of the next instruction
    return address + static_cast<std::uint64_t>(registers[REG_RIP]) + instruction.length;
  }
  const auto base = value_of(operand.base, registers);
  const auto index = value_of(operand.index, registers);
  if (!base || !index) return std::nullopt;
  address += *base + *index * operand.scale;
  return instruction.address_width == 32 ? address & UINT32_MAX : address;
}

/// Returns how many elements of a repeated string instruction are recorded in this step: all that
/// are left, or only the next one if the instruction compares. Returns 1 for other instructions.
std::uint64_t elements(const ZydisDecodedInstruction& instruction, const greg_t* registers) {
  if ((instruction.attributes & kRepeats) == 0) return 1;
  auto left = static_cast<std::uint64_t>(registers[REG_RCX]);
  if (instruction.address_width == 32) left &= UINT32_MAX;
  // An instruction that compares may end at any element: only the next one is certain.
  return (instruction.attributes & ZYDIS_ATTRIB_HAS_REP) != 0 ? left
                                                              : std::min<std::uint64_t>(left, 1);
}

}  // namespace

/// The handler's data.
struct Stepper::Steps {
  ZydisDecoder decoder;
  std::vector<Range> left_out = not_counted();
  LineSet touched{kMostLines};
  LineSet prefetched{kMostLines};
  std::size_t traps = 0;
  std::size_t instructions = 0;
  std::size_t undecoded = 0;
  std::uint64_t before = 0;  // address of the previous instruction
  bool cut = false;

  Steps() { ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }

  void begin() {
    touched.clear();
    prefetched.clear();
    traps = instructions = undecoded = before = 0;
    cut = false;
  }
  /// Records the instruction that comes next, given the registers before it.
  void see(const greg_t* registers);

 private:
  bool note_operands(const ZydisDecodedInstruction& instruction,
                     std::span<const ZydisDecodedOperand> operands, const greg_t* registers);
  void note(LineSet& lines, std::uint64_t from, std::uint64_t to);
};

void Stepper::Steps::see(const greg_t* registers) {
  constexpr std::size_t kLongest = 15;
  const auto at = static_cast<std::uint64_t>(registers[REG_RIP]);
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  const bool decoded = ZYAN_SUCCESS(ZydisDecoderDecodeFull(
      &decoder, std::bit_cast<const void*>(at), kLongest, &instruction, operands.data()));
  // The processor traps after each repetition of a string instruction.
  const bool again = at == before && decoded && (instruction.attributes & kRepeats) != 0;
  before = at;
  if (!again) ++instructions;
  const bool known =
      decoded &&
      note_operands(instruction, std::span(operands).first(instruction.operand_count), registers);
  if (!known && !again) ++undecoded;
  if (++traps == kMostInstructions) cut = true;
}

/// Records the lines of the operands. Returns false if an address is not known.
bool Stepper::Steps::note_operands(const ZydisDecodedInstruction& instruction,
                                   std::span<const ZydisDecodedOperand> operands,
                                   const greg_t* registers) {
  if (instruction.mnemonic == ZYDIS_MNEMONIC_NOP) return true;  // its operand is padding
  const std::uint64_t count = elements(instruction, registers);
  if (count == 0) return true;
  LineSet& lines = is_prefetch(instruction.mnemonic) ? prefetched : touched;
  bool known = true;
  for (const ZydisDecodedOperand& operand : operands) {
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    if (operand.mem.type == ZYDIS_MEMOP_TYPE_AGEN) continue;  // `lea`
    if (operand.mem.segment == ZYDIS_REGISTER_FS || operand.mem.segment == ZYDIS_REGISTER_GS)
      continue;  // thread-local
    const auto at = address_of(instruction, operand.mem, registers);
    const std::uint64_t bytes = operand.size / 8;
    if (!at || bytes == 0) {
      known = false;
      continue;
    }
    const bool down = count > 1 && (registers[REG_EFL] & kDirectionFlag) != 0;
    const std::uint64_t from = down ? *at - (count - 1) * bytes : *at;
    note(lines, from, from + count * bytes);
  }
  return known;
}

void Stepper::Steps::note(LineSet& lines, std::uint64_t from, std::uint64_t to) {
  const auto after = std::ranges::upper_bound(left_out, from, {}, &Range::from);
  if (after != left_out.begin() && from < std::prev(after)->to) return;
  for (std::uint64_t line = from / kLineBytes; line <= (to - 1) / kLineBytes && !cut; ++line)
    cut = !lines.add(line);
}

/// Handles SIGTRAP for the object's lifetime and passes each trap to `steps`. Unblocks SIGTRAP,
/// because the kernel ends a process that traps while it blocks the signal.
class Stepper::Handler {
 public:
  explicit Handler(Steps& steps) {
    stepping = &steps;
    struct sigaction ours{};
    ours.sa_sigaction = &on_trap;
    ours.sa_flags = SA_SIGINFO;
    ::sigaction(SIGTRAP, &ours, &previous);
    sigset_t trap;
    ::sigemptyset(&trap);
    ::sigaddset(&trap, SIGTRAP);
    ::pthread_sigmask(SIG_UNBLOCK, &trap, &blocked_);
  }
  ~Handler() {
    ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
    ::sigaction(SIGTRAP, &previous, nullptr);
  }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;

 private:
  static void on_trap(int, siginfo_t* info, void* context);

  static inline Steps* stepping = nullptr;  // data of the only `Handler`
  static inline struct sigaction previous{};
  sigset_t blocked_;
};

void Stepper::Handler::on_trap(int, siginfo_t* info, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  // In a virtual machine the reason of a trap may get lost when a page is mapped while a string
  // instruction repeats. Linux then reports TRAP_BRKPT; for a breakpoint it reports SI_KERNEL.
  if (info->si_code == TRAP_TRACE || info->si_code == TRAP_BRKPT) {
    stepping->see(registers);
  } else {  // not from stepping: the previous handler gets the signal
    stepping->cut = true;
    ::sigaction(SIGTRAP, &previous, nullptr);
    ::raise(SIGTRAP);
  }
  if (stepping->cut) registers[REG_EFL] &= ~kTrapFlag;
}

Stepper::Stepper(std::unique_ptr<Steps> steps) : steps_(std::move(steps)) {}
Stepper::Stepper(Stepper&&) noexcept = default;
Stepper& Stepper::operator=(Stepper&&) noexcept = default;
Stepper::~Stepper() = default;

Result<Stepper> Stepper::create() {
  if (kSanitized)
    return std::unexpected(
        Error{"cache lines cannot be counted in a build with a sanitizer: build without it"});
  Stepper stepper(std::make_unique<Steps>());
  if (stepper.follow([] {}).instructions == 0) {
    return std::unexpected(
        Error{"cache lines cannot be counted: this system does not single-step (valgrind?)"});
  }
  return stepper;
}

Footprint Stepper::follow(void (*call)(void*), void* argument) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  steps_->begin();
  {
    const Handler handler(*steps_);
    const TrapFlag set;
    call(argument);
  }
  return {steps_->touched.lines(), steps_->prefetched.lines(), steps_->instructions,
          steps_->undecoded, steps_->cut};
}

}  // namespace millrace::bench
