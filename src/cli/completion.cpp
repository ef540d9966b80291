#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/build_info.h"
#include "cli/app_text.h"
#include "cli/command.h"

namespace redline::cli {

void add_completion(CLI::App& app, Context& context) {
  CLI::App& command =
      add_command(app, "completion", "Print completion for a shell, or the manual page",
                  {"redline completion bash > ~/.local/share/bash-completion/completions/redline",
                   "redline completion man | man -l -"});
  const auto kind = std::make_shared<std::string>();
  command.add_option("kind", *kind, "What to print")
      ->required()
      ->type_name("bash|zsh|man")
      ->check(CLI::IsMember({"bash", "zsh", "man"}))
      ->type_name("bash|zsh|man");
  on_run(command, context, [kind, &app] {
    fmt::print("{}", *kind == "bash"  ? bash_completion(app)
                     : *kind == "zsh" ? zsh_completion(app)
                                      : manual_page(app, build_info().version));
    return 0;
  });
}

}  // namespace redline::cli
