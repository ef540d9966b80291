#include <exception>
#include <memory>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/build_info.h"
#include "base/error.h"
#include "cli/command.h"

namespace redline::cli {

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& summary,
                      const std::vector<std::string>& examples) {
  CLI::App* command = app.add_subcommand(name, summary);
  std::string footer = "\nExamples:";
  for (const std::string& example : examples) footer += "\n  " + example;
  command->footer(footer);
  return *command;
}

void on_run(CLI::App& command, Context& context, Action action) {
  command.callback([&context, action = std::move(action)] { context.action = action; });
}

namespace {

int fail(ExitCode code, const std::string& message) {
  fmt::print(stderr, "redline: error: {}\n", message);
  return static_cast<int>(code);
}

int parse_and_run(int argc, char** argv, const std::vector<AddCommand>& commands) {
  Context context;
  context.arguments.assign(argv, argv + argc);
  CLI::App app("Redline trains ResNet image classifiers as fast as the hardware allows.", "redline");
  app.set_version_flag("--version", build_info().version);
  app.require_subcommand(1);
  for (AddCommand add : commands) add(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(ExitCode::usage, e.what());
  }
  return context.action();
}

}  // namespace

int run(int argc, char** argv, const std::vector<AddCommand>& commands) {
  try {
    return parse_and_run(argc, argv, commands);
  } catch (const Error& e) {
    return fail(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::unavailable, "out of memory: try a smaller --batch-size or fewer --workers");
  } catch (const std::exception& e) {
    return fail(ExitCode::internal, fmt::format("internal error: {}", e.what()));
  } catch (...) {
    return fail(ExitCode::internal, "internal error: an exception of unknown type");
  }
}

}  // namespace redline::cli
