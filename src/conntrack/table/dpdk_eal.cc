#include "conntrack/table/dpdk_eal.h"

#include <rte_config.h>  // first of DPDK's

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace millrace {
namespace {

/// EAL prints what it refuses, and its usage. While this lives, nothing that is printed appears:
/// glibc lets a program put other streams in the places of `stdout` and `stderr`.
class Silence {
 public:
  Silence() { exchange(); }
  ~Silence() {
    exchange();
    if (nowhere_ != nullptr) std::fclose(nowhere_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  void exchange() {
    if (nowhere_ == nullptr) return;
    std::swap(stdout, out_);
    std::swap(stderr, err_);
  }

  std::FILE* nowhere_ = std::fopen("/dev/null", "w");
  std::FILE* out_ = nowhere_;
  std::FILE* err_ = nowhere_;
};

/// EAL makes a directory `dpdk/PREFIX` for files that other processes would look for, and leaves it
/// there, empty since we share none. What others put into `dpdk` keeps it.
void remove_runtime_directory() {
  const std::string directory = rte_eal_get_runtime_dir();
  if (directory.empty()) return;
  ::rmdir(directory.c_str());
  ::rmdir(directory.substr(0, directory.rfind('/')).c_str());
}

/// A negative `rte_errno` on failure, as EAL left it; 0 or more where it runs.
int start() {
  // EAL pins its main thread to the one lcore that it needs here. It may write to its arguments,
  // and keeps pointers to them.
  static std::array arguments{std::string("millrace"),
                              std::string("--no-huge"),
                              std::string("-m32"),
                              std::string("--no-shconf"),
                              std::string("--no-pci"),
                              std::string("--no-telemetry"),
                              std::string("--no-hpet"),
                              std::string("--log-level=*:emergency"),
                              "--file-prefix=millrace-" + std::to_string(::getpid()),
                              "--lcores=0@" + std::to_string(::sched_getcpu())};
  static std::array<char*, arguments.size() + 1> argv{};
  for (std::size_t i = 0; i < arguments.size(); ++i) argv[i] = arguments[i].data();
  const Silence silence;
  const int result = rte_eal_init(static_cast<int>(arguments.size()), argv.data());
  const int error = std::max(rte_errno, 1);
  remove_runtime_directory();
  return result < 0 ? -error : result;
}

/// What EAL lacks, as far as it can be told from outside.
std::string lacking(int error) {
  if (::access("/sys/devices/system/cpu/cpu0/topology", F_OK) != 0)
    return "it reads the processor's topology in /sys/devices/system/cpu, which is not there: "
           "mount "
           "/sys, or choose another table";
  return std::string(rte_strerror(error)) +
         "; it needs 32 MiB of memory and a processor with SSE4.2";
}

Result<void> start_once() {
  if (rte_lcore_count() != 0) return {};  // 0 before EAL has started
  int result = 0;
  try {
    std::thread([&result] { result = start(); }).join();
  } catch (const std::system_error&) {  // no thread to be had
    result = -EAGAIN;
  }
  if (result >= 0) return {};
  return std::unexpected(Error{"DPDK's environment did not start: " + lacking(-result)});
}

}  // namespace

Result<void> start_dpdk_eal() {
  static const Result<void> started = start_once();
  return started;
}

}  // namespace millrace
