// `millrace generate`: writes a made-up trace.
#include "traffic/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "command.h"
#include "port/capture_writer.h"

namespace millrace::cli {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

struct Options {
  std::string profile = "campus";
  TrafficPlan plan;
  std::optional<std::uint64_t> packets;
  std::string out;
  bool quiet = false;
};

int failed(const Error& error) {
  fmt::print(stderr, "millrace generate: {}\n", error.message);
  return static_cast<int>(error.kind);
}

/// How far it is, on a terminal only.
class Progress {
 public:
  Progress(bool quiet, std::uint64_t of)
      : shown_(!quiet && ::isatty(STDERR_FILENO) == 1), of_(of) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r{:40}\r", "");
  }

  void at(std::uint64_t packets) const {
    constexpr std::uint64_t kStep = std::uint64_t{1} << 18;
    if (!shown_ || packets % kStep != 0) return;
    fmt::print(stderr, "\rgenerating: {} of {} packets", packets, of_);
  }

 private:
  bool shown_;
  std::uint64_t of_;
};

struct Written {
  std::uint64_t packets = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t first_ns = 0;
  std::uint64_t last_ns = 0;
};

Written write_all(Generator& generator, CaptureWriter& writer, const Options& options) {
  const Progress progress(options.quiet, options.plan.packets);
  Written written;
  Generator::Packet packet;
  while (!interrupted.load(std::memory_order_relaxed) && !writer.failed() &&
         generator.next(packet)) {
    writer.write(packet.timestamp_ns, packet.wire_length, packet.bytes);
    if (written.packets == 0) written.first_ns = packet.timestamp_ns;
    written.last_ns = packet.timestamp_ns;
    written.wire_bytes += packet.wire_length;
    progress.at(++written.packets);
  }
  return written;
}

void summarise(const Options& options, const Written& written) {
  if (options.quiet) return;
  const double seconds = static_cast<double>(written.last_ns - written.first_ns) / 1e9;
  const std::uint64_t mean = written.wire_bytes / std::max<std::uint64_t>(written.packets, 1);
  fmt::print("{}: {} packets of {} {} connections over {:.1f} s, {} bytes each on the wire\n",
             options.out, written.packets, options.plan.connections, options.profile, seconds,
             mean);
}

int generate_file(const Options& options) {
  if (auto possible = check(options.plan); !possible) return failed(possible.error());
  auto writer = CaptureWriter::create(options.out, {1, options.plan.snaplen, true});
  if (!writer) return failed(writer.error());
  auto generator = Generator::create(options.plan, &interrupted);
  if (!generator) return failed(generator.error());
  const Written written = write_all(*generator, *writer, options);
  if (auto done = writer->finish(); !done) return failed(done.error());
  if (written.packets < options.plan.packets) {
    fmt::print(stderr, "millrace generate: interrupted: {} holds the first {} of {} packets\n",
               options.out, written.packets, options.plan.packets);
    return kInterrupted;
  }
  summarise(options, written);
  return kDone;
}

void catch_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted.store(true, std::memory_order_relaxed); };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A limit on the file's size is an error of writing like a full disk, not a death.
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  // CLI11 would take -5 as 2^64 - 5.
  const CLI::Validator not_negative(
      [](std::string& value) {
        return value.starts_with('-') ? value + " is negative" : std::string{};
      },
      "");
  auto options = std::make_shared<Options>();
  TrafficPlan& plan = options->plan;
  auto* command = app.add_subcommand("generate", "Write a made-up trace");
  command
      ->add_option("--profile", options->profile,
                   "campus: mixed, two-way, heavy-tailed; uniform: the worst case for a cache; "
                   "flood: every packet a new connection")
      ->check(CLI::IsMember({"campus", "uniform", "flood"}))
      ->capture_default_str();
  command->add_option("--connections", plan.connections, "Connections, exactly")
      ->check(not_negative)
      ->capture_default_str();
  command
      ->add_option("--packets", options->packets,
                   "Packets, exactly (default: ten times the connections; flood: as many)")
      ->check(not_negative);
  command->add_option("--seed", plan.seed, "The same seed gives the same file")
      ->check(not_negative)
      ->capture_default_str();
  command->add_option("--out", options->out, "The pcap file to write")->required();
  command->add_option("--snaplen", plan.snaplen, "Bytes kept of a packet")
      ->check(not_negative)
      ->capture_default_str();
  command->add_option("--duration", plan.duration_s, "Seconds within which connections begin")
      ->check(not_negative)
      ->capture_default_str();
  command->add_flag("--quiet", options->quiet, "No progress, no summary");
  command->footer(
      "\nExample: millrace generate --profile campus --connections 100000 --packets 1000000 "
      "--seed 1 --out t.pcap");
  command->callback([options, &run] {
    run = [options] {
      TrafficPlan& p = options->plan;
      p.profile = *profile_named(options->profile);
      p.packets = options->packets.value_or(usual_packets(p.profile, p.connections));
      catch_signals();
      return generate_file(*options);
    };
  });
}

}  // namespace millrace::cli
