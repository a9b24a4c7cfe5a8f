// millrace: the command line. Each subcommand is a file of its own.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "command.h"
#include "version.h"

int main(int argc, char** argv) {
  using namespace millrace::cli;
  CLI::App app{"Connection tracking at line rate on ordinary servers.", "millrace"};
  app.set_version_flag("--version", "millrace " MILLRACE_VERSION);
  app.require_subcommand(1);
  app.footer("\nTry: millrace replay --in capture.pcap");
  Run run;
  add_replay(app, run);
  add_generate(app, run);
  add_bench(app, run);
  add_schemes(app, run);
  add_completion(app, run);
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    fmt::print(stderr, "millrace: {} (millrace --help shows what there is)\n", wrong.what());
    return kUsage;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "millrace: {}\n", failure.what());
    return kFailed;
  }
}
