// The program `millrace-bench`: the commands of millrace that measure.
#include <filesystem>

#include "bench_command.h"
#include "command_line/completion.h"
#include "command_line/handed_over.h"
#include "command_line/program.h"
#include "command_line/version.h"

int main(int argc, char** argv) {
  using namespace millrace::cli;
  hold_standard_streams();
  // `millrace` passes its own name, so that help and messages show `millrace`.
  const std::filesystem::path called = argc > 0 ? argv[0] : kBenchProgram;
  CLI::App app{"The commands of millrace that measure.", called.filename()};
  app.set_version_flag("--version", "millrace-bench " MILLRACE_VERSION);
  app.require_subcommand(1);
  app.footer("\nTry: millrace bench path --quick");
  Run chosen;
  add_advise(app, chosen);
  add_bench(app, chosen);
  add_completion(app, chosen, {.program = kBenchProgram});
  return run_program(app, chosen, argc, argv);
}
