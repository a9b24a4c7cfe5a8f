#include "live_table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <string>
#include <vector>

#include "command_line/interrupt.h"
#include "command_line/output.h"

namespace millrace::cli {
namespace {

constexpr std::chrono::milliseconds kLeastApart{100};
constexpr std::chrono::seconds kMostApart{1};

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool can_redraw() { return ::isatty(STDERR_FILENO) != 0 && variable("TERM") != "dumb"; }

/// Returns the terminal window's size. Asks for it each time, because the window may have been
/// resized.
WindowSize window_size() {
  winsize window{};
  WindowSize size;
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0) return size;
  if (window.ws_col > 0) size.columns = window.ws_col;
  if (window.ws_row > 0) size.rows = window.ws_row;
  return size;
}

/// Returns the text that draws the lines and puts the cursor back to the start of the first line.
/// The next drawing clears everything below, however a resized terminal has wrapped the lines.
std::string in_place(const std::vector<LiveLine>& lines) {
  const bool bold = variable("NO_COLOR").empty();
  std::string text = "\r";
  for (const LiveLine& line : lines) {
    if (&line != &lines.front()) text += "\r\n";
    text += bold && line.is_best ? fmt::format("\033[1m{}\033[m\033[K", line.text)
                                 : fmt::format("{}\033[K", line.text);
  }
  text += "\033[J\r";
  if (lines.size() > 1) text += fmt::format("\033[{}A", lines.size() - 1);
  return text;
}

}  // namespace

LiveTable::LiveTable(bool quiet, Unit unit) : shows_(!quiet && can_redraw()), rows_(unit) {
  if (shows_) thread_ = std::jthread([this](const std::stop_token& stop) { redraw(stop); });
}

bench::Progress LiveTable::progress() {
  return bench::Progress([this](const bench::Step& step) { return next(step); },
                         [this](std::string_view who, double value) { seen(who, value); });
}

bool LiveTable::next(const bench::Step& step) {
  if (!shows_) return !interrupted.load();
  const std::scoped_lock lock(mutex_);
  rows_.next(step);
  is_stale_ = true;
  if (SteadyClock::now() - drawn_ >= kLeastApart) draw();
  return !interrupted.load();
}

void LiveTable::seen(std::string_view who, double value) {
  if (!shows_) return;
  const std::scoped_lock lock(mutex_);
  rows_.add(who, value);
  is_stale_ = true;
}

void LiveTable::redraw(const std::stop_token& stop) {
  std::condition_variable_any wake;
  std::unique_lock lock(mutex_);
  const auto stopped = [&stop] { return stop.stop_requested(); };
  while (!wake.wait_for(lock, stop, kLeastApart, stopped)) {
    const auto since = SteadyClock::now() - drawn_;
    const bool is_due = is_stale_ || interrupted.load() || since >= kMostApart;
    if (is_due && drawn_ != SteadyClock::time_point{} && since >= kLeastApart) draw();
  }
}

/// Draws the lines. After an interrupt draws a single line instead, because a second signal would
/// leave the lines on the terminal.
void LiveTable::draw() {
  const auto now = SteadyClock::now();
  const WindowSize window = window_size();
  const std::chrono::duration<double> seconds = now - start_;
  auto lines = rows_.lines(seconds.count(), window);
  if (interrupted.load())
    lines = {{std::string("interrupted: ends after this step").substr(0, window.columns - 1)}};
  say(in_place(lines));
  drawn_ = now;
  is_stale_ = false;
}

void LiveTable::clear() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  if (drawn_ != SteadyClock::time_point{}) say("\r\033[J");
}

}  // namespace millrace::cli
