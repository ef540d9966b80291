// Subcommands. Each is one function in its own file, cli/<name>.cpp:
//     void add_<name>(CLI::App& app, Context& context);
// It adds the subcommand to app with its options, help and examples, and what to run when it is chosen:
//     auto options = std::make_shared<Options>();
//     CLI::App& command =
//         add_command(app, "eval", "Measure a checkpoint's accuracy", {"redline eval runs/a data"});
//     command.add_option("checkpoint", options->checkpoint, "...")->required();
//     on_run(command, context, [options] { return evaluate(*options); });
// The function is declared at the end of this file and listed in main.cpp, nowhere else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/App.hpp>  // not CLI.hpp, which takes three times as long to compile

namespace redline::cli {

// What a command does once the command line is parsed; returns the exit code. Failures are thrown
// (base/error.h). Its captures must outlive the function that declared the options.
using Action = std::function<int()>;
inline constexpr int kSignalExit = 128;  // plus the signal, of a command that a signal ended

struct Context {
  std::vector<std::string> arguments;  // as typed, program name first
  bool quiet = false;                  // the program's own --quiet
  Action action;                       // of the chosen command; set while parsing
  // Commands, by their words ("bench", "ab"), that read what follows the first -- from `arguments`
  // themselves; the parser does not see it.
  std::vector<std::vector<std::string>> read_rest;
};

using AddCommand = void (*)(CLI::App& app, Context& context);

// Adds a subcommand with its one-line summary, and examples shown below its help.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& summary,
                      const std::vector<std::string>& examples);

// Adds a command that only groups others ("data" of "data synth"): add those to the result.
CLI::App& add_group(CLI::App& app, const std::string& name, const std::string& summary,
                    const std::vector<std::string>& examples);

// Runs action if command is chosen.
void on_run(CLI::App& command, Context& context, Action action);

// Parses the command line against the listed commands, runs the chosen one, and turns every failure into a
// message on stderr and its documented exit code. Never throws.
int run(int argc, char** argv, const std::vector<AddCommand>& commands);

void add_demo(CLI::App& app, Context& context);
void add_launch(CLI::App& app, Context& context);
void add_train(CLI::App& app, Context& context);
void add_profile(CLI::App& app, Context& context);
void add_coreutil(CLI::App& app, Context& context);
void add_eval(CLI::App& app, Context& context);
void add_predict(CLI::App& app, Context& context);
void add_export(CLI::App& app, Context& context);
void add_data(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_variability(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);

}  // namespace redline::cli
