// millrace: the command line. Each subcommand is a file of its own.
#include "command_line/completion.h"
#include "command_line/handed_over.h"
#include "command_line/program.h"
#include "command_line/version.h"
#include "commands.h"
#include "hand_over.h"

int main(int argc, char** argv) {
  using namespace millrace::cli;
  hold_standard_streams();
  if (is_handed_over(argc, argv)) return hand_over(argv);
  CLI::App app{"Connection tracking at line rate on ordinary servers.", "millrace"};
  app.set_version_flag("--version", "millrace " MILLRACE_VERSION);
  app.require_subcommand(1);
  app.footer("\nTry: millrace replay --in capture.pcap");
  Run chosen;
  add_replay(app, chosen);
  add_run(app, chosen);
  add_generate(app, chosen);
  add_handed_over(app);
  add_explain(app, chosen);
  add_schemes(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen,
                 {.program = "millrace",
                  .handed_over_to = kBenchProgram,
                  .print_handed_over = print_handed_over_completion});
  return run_program(app, chosen, argc, argv);
}
