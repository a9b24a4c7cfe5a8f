// `millrace generate`: writes a made-up trace.
#include "traffic/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "command_line/interrupt.h"
#include "command_line/output.h"
#include "command_line/validators.h"
#include "commands.h"
#include "core/counter.h"
#include "port/capture_writer.h"
#include "progress.h"

namespace millrace::cli {
namespace {

struct Options {
  std::string profile = "campus";
  TrafficPlan plan;
  std::optional<std::uint64_t> packets;
  std::string out;
  bool quiet = false;
};

struct Written {
  std::uint64_t packets = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t first_ns = 0;
  std::uint64_t last_ns = 0;
};

Written write_all(Generator& generator, CaptureWriter& writer, const Options& options) {
  Counter packets;
  const Progress progress(options.quiet, "generating", options.plan.packets,
                          [&packets] { return packets.value(); });
  Written written;
  Generator::Packet packet;
  while (!interrupted.load(std::memory_order_relaxed) && !writer.failed() &&
         generator.next(packet)) {
    writer.write(packet.timestamp_ns, packet.wire_length, packet.bytes);
    if (written.packets == 0) written.first_ns = packet.timestamp_ns;
    written.last_ns = packet.timestamp_ns;
    written.wire_bytes += packet.wire_length;
    packets.add(1);
    ++written.packets;
  }
  return written;
}

std::string name_of(const std::string& out) { return out == "-" ? "standard output" : out; }

void summarise(const Options& options, const Written& written) {
  if (options.quiet) return;
  const double seconds = static_cast<double>(written.last_ns - written.first_ns) / 1e9;
  const std::uint64_t mean = written.wire_bytes / std::max<std::uint64_t>(written.packets, 1);
  const std::string line =
      fmt::format("{}: {} packets of {} {} connections over {:.1f} s, {} bytes each on the wire\n",
                  name_of(options.out), written.packets, options.plan.connections, options.profile,
                  seconds, mean);
  if (is_standard_output(options.out)) {
    say(line);
  } else {
    fmt::print("{}", line);
  }
}

int generate_file(const Options& options) {
  if (auto ok = check_no_terminal("--out", options.out); !ok) return fail(ok.error());
  if (auto possible = check(options.plan); !possible) return fail(possible.error());
  auto writer = CaptureWriter::create(is_standard_output(options.out) ? "-" : options.out,
                                      {{1}, options.plan.snaplen, true});
  if (!writer) return fail(writer.error());
  auto generator = Generator::create(options.plan, &interrupted);
  if (!generator) return fail(generator.error());
  const Written written = write_all(*generator, *writer, options);
  if (auto done = writer->finish(); !done) return fail(done.error());
  if (written.packets < options.plan.packets) {
    say(fmt::format("millrace: interrupted: {} holds the first {} of {} packets\n",
                    name_of(options.out), written.packets, options.plan.packets));
    return kInterrupted;
  }
  summarise(options, written);
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  TrafficPlan& plan = options->plan;
  auto* command = app.add_subcommand("generate", "Write a made-up trace");
  command
      ->add_option("--profile", options->profile,
                   "campus: mixed, two-way, heavy-tailed; uniform: the worst case for a cache; "
                   "flood: every packet a new connection; skewed: three connections have half of "
                   "the packets")
      ->check(one_of({"campus", "uniform", "flood", "skewed"}))
      ->capture_default_str();
  command->add_option("--connections", plan.connections, "Exact number of connections")
      ->check(not_negative())
      ->capture_default_str();
  command
      ->add_option("--packets", options->packets,
                   "Exact number of packets (default: ten times the connections; with flood as "
                   "many as connections)")
      ->check(not_negative());
  command->add_option("--seed", plan.seed, "The same seed gives the same file")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--out", options->out, "The pcap file to write; - is standard output")
      ->check(not_empty())
      ->required()
      ->type_name("FILE");
  command->add_option("--snaplen", plan.snaplen, "Bytes kept of a packet")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--duration", plan.duration_s, "Seconds within which connections begin")
      ->check(not_negative())
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
      catch_interrupts();
      return generate_file(*options);
    };
  });
}

}  // namespace millrace::cli
