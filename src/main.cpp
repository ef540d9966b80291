// The table of subcommands, in the order of the help page. A line here, a declaration in cli/command.h and a
// file in cli/ make a command.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/command.h"

namespace {

// A file must not get the number of a standard stream that is closed, or messages would be written into it.
// Reading from these fails, and so does writing, as it would without them.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace redline::cli;
  occupy_standard_streams();
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
