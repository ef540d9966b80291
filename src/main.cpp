// The table of subcommands, in the order of the help page. A line here, a declaration in cli/command.h and a
// file in cli/ make a command.
#include <sys/prctl.h>

#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace redline::cli;
  ::prctl(PR_SET_NAME, "redline");  // ranks are started as /proc/self/exe, which ps would show as exe
  return run(argc, argv,
             {
                 add_demo,
                 add_train,
                 add_launch,
                 add_profile,
                 add_coreutil,
                 add_eval,
                 add_predict,
                 add_export,
                 add_data,
                 add_report,
                 add_variability,
                 add_bench,
                 add_doctor,
                 add_completion,
             });
}
