#include "conntrack/table/dpdk_eal.h"

#include <rte_config.h>  // first of DPDK's

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <thread>

namespace millrace {
namespace {

/// A negative `rte_errno` on failure, as EAL left it; 0 or more where it runs.
int start() {
  // EAL pins its main thread to the one lcore that it needs here. It may write to its arguments,
  // and keeps pointers to them.
  static std::array<std::string, 9> arguments{"millrace",
                                              "--no-huge",
                                              "-m32",
                                              "--no-shconf",
                                              "--no-pci",
                                              "--no-telemetry",
                                              "--no-hpet",
                                              "--log-level=*:emergency",
                                              "--lcores=0@" + std::to_string(::sched_getcpu())};
  static std::array<char*, arguments.size() + 1> argv{};
  for (std::size_t i = 0; i < arguments.size(); ++i) argv[i] = arguments[i].data();
  const int result = rte_eal_init(static_cast<int>(arguments.size()), argv.data());
  return result < 0 ? -std::max(rte_errno, 1) : result;
}

Result<void> start_once() {
  if (rte_lcore_count() != 0) return {};  // 0 before EAL has started
  int result = 0;
  std::thread([&result] { result = start(); }).join();
  if (result >= 0) return {};
  return std::unexpected(
      Error{std::string("DPDK's environment did not start (") + rte_strerror(-result) +
            "): it needs 32 MiB of memory and a processor with SSE4.2; or choose another table"});
}

}  // namespace

Result<void> start_dpdk_eal() {
  static const Result<void> started = start_once();
  return started;
}

}  // namespace millrace
