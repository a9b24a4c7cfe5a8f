#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "command_line/output.h"

namespace millrace::cli {
namespace {

void show(const std::stop_token& stop, const std::string& what, std::uint64_t total,
          const std::function<std::uint64_t()>& done) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  bool shown = false;
  const auto stopped = [&stop] { return stop.stop_requested(); };
  while (!wake.wait_for(lock, stop, std::chrono::milliseconds(200), stopped)) {
    const auto packets = static_cast<double>(done());
    say(fmt::format("\r{}: {:.0f} %, {:.1f} of {:.1f} M packets ", what,
                    100.0 * packets / static_cast<double>(total), packets / 1e6,
                    static_cast<double>(total) / 1e6));
    shown = true;
  }
  if (shown) say("\r\033[K");
}

}  // namespace

Progress::Progress(bool quiet, std::string what, std::uint64_t total,
                   std::function<std::uint64_t()> done) {
  if (quiet || total == 0 || ::isatty(STDERR_FILENO) == 0) return;
  thread_ = std::jthread([what = std::move(what), total, done = std::move(done)](
                             const std::stop_token& stop) { show(stop, what, total, done); });
}

}  // namespace millrace::cli
