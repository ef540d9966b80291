// The table of subcommands. A line here and a file in cli/ make a command.
#include "cli/command.h"

int main(int argc, char** argv) {
  return redline::cli::run(argc, argv, {
                                       });
}
