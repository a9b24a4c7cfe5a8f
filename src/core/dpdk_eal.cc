#include "core/dpdk_eal.h"

#include <rte_config.h>  // first of DPDK's

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/silence.h"

namespace millrace {
namespace {

/// Returns the first complaint in what EAL has printed, without its prefix "EAL: ". Lines that
/// begin with "EAL: Detected" do not count.
std::string complaint(const std::string& printed) {
  for (std::size_t at = 0; at < printed.size();) {
    const std::size_t end = std::min(printed.find('\n', at), printed.size());
    const std::string line = printed.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("EAL: ") && !line.starts_with("EAL: Detected")) return line.substr(5);
  }
  return {};
}

/// Removes the directory `dpdk/PREFIX` that EAL makes for files to share with other processes, and
/// leaves behind. It is empty, since millrace shares no files. The directory `dpdk` above it is
/// removed, too, unless it has other entries.
void remove_runtime_directory() {
  const std::string directory = rte_eal_get_runtime_dir();
  if (directory.empty()) return;
  ::rmdir(directory.c_str());
  ::rmdir(directory.substr(0, directory.rfind('/')).c_str());
}

/// Returns EAL's command line, with one lcore on the processor that runs the calling thread: EAL
/// binds this thread to the lcore.
std::vector<std::string> arguments_for(const EalOptions& options) {
  std::vector<std::string> all{"millrace",
                               options.telemetry ? "--telemetry" : "--no-telemetry",
                               "--no-hpet",
                               "--log-level=*:error",
                               "--file-prefix=millrace-" + std::to_string(::getpid()),
                               "--lcores=0@" + std::to_string(::sched_getcpu())};
  if (options.pci_devices.empty()) {
    for (const char* one : {"--no-huge", "-m32", "--no-shconf", "--no-pci"}) all.emplace_back(one);
  } else {
    all.emplace_back("--in-memory");
    for (const auto& device : options.pci_devices) all.push_back("--allow=" + device);
  }
  all.insert(all.end(), options.more.begin(), options.more.end());
  return all;
}

struct Started {
  int error = 0;  ///< an `rte_errno`; 0: EAL runs
  std::string complaint;
};

Started start(const EalOptions& options) {
  // EAL may write to its arguments, and keeps pointers to them.
  static std::vector<std::string> arguments;
  static std::vector<char*> argv;
  arguments = arguments_for(options);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // This handler runs after EAL's own, which removes EAL's socket.
  if (options.telemetry) std::atexit(remove_runtime_directory);
  Silence silence;
  const int result = rte_eal_init(static_cast<int>(arguments.size()), argv.data());
  const int error = result < 0 ? std::max(rte_errno, 1) : 0;
  std::string printed = silence.end();
  remove_runtime_directory();
  return {error, complaint(printed)};
}

/// Returns what EAL lacks, as far as that can be seen from outside.
std::string lacking(const Started& started, const EalOptions& options) {
  if (::access("/sys/devices/system/cpu/cpu0/topology", F_OK) != 0)
    return "it reads the processor's topology in /sys/devices/system/cpu, which is not there: "
           "mount /sys, or, in a run without network devices, choose another table";
  const std::string what =
      started.complaint.empty() ? rte_strerror(started.error) : started.complaint;
  if (!options.more.empty()) return what + ": check the options after --";
  if (!options.pci_devices.empty())
    return what +
           ": PCI devices need huge pages (echo 1024 > "
           "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages) and a driver such as vfio-pci";
  return what + "; it needs 32 MiB of memory and a processor with SSE4.2";
}

Result<void> start_once(const EalOptions& options) {
  if (rte_lcore_count() != 0) return {};  // 0 before EAL has started
  Started started;
  try {
    std::thread([&] { started = start(options); }).join();
  } catch (const std::system_error&) {  // no thread could be started
    started.error = EAGAIN;
  }
  if (started.error == 0) return {};
  return std::unexpected(Error{"DPDK's environment did not start: " + lacking(started, options)});
}

}  // namespace

Result<void> start_dpdk_eal(const EalOptions& options) {
  static const Result<void> started = start_once(options);
  return started;
}

}  // namespace millrace
