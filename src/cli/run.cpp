#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <new>
#include <regex>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/cpu/onednn_info.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/option_text.h"

namespace redline::cli {

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& summary,
                      const std::vector<std::string>& examples) {
  CLI::App* command = app.add_subcommand(name, summary);
  std::string footer = examples.size() == 1 ? "\nExample:" : "\nExamples:";
  for (const std::string& example : examples) footer += "\n  " + example;
  command->footer(footer);
  command->fallthrough();  // --verbose and --quiet may follow the command
  return *command;
}

CLI::App& add_group(CLI::App& app, const std::string& name, const std::string& summary,
                    const std::vector<std::string>& examples) {
  CLI::App& group = add_command(app, name, summary, examples);
  // At most one: without the limit, an argument that equals a command's name would be parsed as that command.
  group.require_subcommand(1);
  return group;
}

void on_run(CLI::App& command, Context& context, Action action) {
  command.callback([&context, action = std::move(action)] { context.action = action; });
}

namespace {

constexpr const char* kFooter = R"(
Exit codes:
  0 success; 64 wrong usage; 65 bad data; 69 a required device or library is missing; 70 a bug in redline;
  74 input or output failed; 75 stopped early, a checkpoint was written; 128+N ended by signal N

Example:
  redline doctor
Each command has its own help: redline <command> --help)";

int fail(ExitCode code, const std::string& message) {
  print_stderr("redline: error: {}\n", printable(message, true));
  return static_cast<int>(code);
}

std::string version_text() {
  const BuildInfo build = build_info();
  return fmt::format("redline {}\ncommit    {}\nbuild     {}\ncompiler  {}\noneDNN    {}", build.version,
                     build.commit, build.build_type, build.compiler, backend::onednn_info().version);
}

// The innermost command recognised on the command line.
CLI::App* chosen_command(CLI::App& app) {
  CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command;
}

// "redline data synth", to point to its help.
std::string full_name(const CLI::App* command) {
  std::string name = command->get_name();
  for (command = command->get_parent(); command != nullptr; command = command->get_parent()) {
    name = command->get_name() + " " + name;
  }
  return name;
}

std::vector<std::string> names_to_suggest(CLI::App* command, bool flags) {
  std::vector<std::string> names;
  if (!flags) {
    for (const CLI::App* sub : command->get_subcommands([](CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
    }
    return names;
  }
  for (; command != nullptr; command = command->get_parent()) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// Other trainers' names and ours: a flag or a command, with more words where another name is not enough.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"--arch", "--model"},
    {"-a", "--model"},
    {"--model-name", "--model"},
    {"--learning-rate", "--lr"},
    {"--base-lr", "--lr"},
    {"--optimizer", "--opt"},
    {"--optim", "--opt"},
    {"--pretrained", "--init FILE (safetensors, .pth, a checkpoint or a run)"},
    {"--weights", "--init FILE (safetensors, .pth, a checkpoint or a run)"},
    {"--initial-checkpoint", "--init FILE (safetensors, .pth, a checkpoint or a run)"},
    {"--num-classes", "--classes"},
    {"--batch", "--batch-size"},
    {"--bs", "--batch-size"},
    {"--gpu", "--device cuda:N"},
    {"--num-workers", "--workers"},
    {"--img-size", "--image-size"},
    {"--imgsz", "--image-size"},
    {"--input-size", "--image-size"},
    {"--train-crop-size", "--image-size"},
    {"--val-crop-size", "--image-size"},
    {"--sched", "--lr-scheduler"},
    {"--scheduler", "--lr-scheduler"},
    {"--warmup-epochs", "--lr-warmup-epochs"},
    {"--milestones", "--lr-milestones"},
    {"--min-lr", "--lr-min"},
    {"--smoothing", "--label-smoothing"},
    {"--mixup", "--mixup-alpha"},
    {"--cutmix", "--cutmix-alpha"},
    {"--aa", "--auto-augment"},
    {"--reprob", "--random-erase"},
    {"--grad-checkpointing", "--recompute blocks"},
    {"--gradient-checkpointing", "--recompute blocks"},
    {"--fp16", "--dtype fp16"},
    {"--bf16", "--dtype bf16"},
    {"--half", "--dtype fp16"},
    {"--mixed-precision", "--amp"},
    {"--grad-accum-steps", "--accumulate"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--early-stopping", "--patience"},
    {"--print-freq", "--log-every"},
    {"--log-interval", "--log-every"},
    {"--save-dir", "--output-dir"},
    {"--out-dir", "--output-dir"},
    {"--project", "--output-dir"},
    {"--log-dir", "--output-dir"},
    {"--experiment", "--name"},
    {"--exp-name", "--name"},
    {"--resume-from", "--resume"},
    {"--resume-from-checkpoint", "--resume"},
    {"--start-epoch", "--resume"},
    {"--max-steps", "--steps"},
    {"--decay-rate", "--lr-gamma"},
    {"--decay-epochs", "--lr-step-size"},
    {"--ema", "--model-ema"},
    {"--clip-grad", "--clip-norm"},
    {"--max-grad-norm", "--clip-norm"},
    {"--gradient-clip-val", "--clip-norm"},
    {"--precision", "--dtype"},
    {"--amp-dtype", "--dtype"},
    {"--accumulate-grad-batches", "--accumulate"},
    {"--checkpoint-hist", "--keep"},
    {"--val", "--val-dir"},
    {"--val-fraction", "--val-split"},
    {"--no-amp", "--dtype fp32"},
    {"--topk", "--top"},
    {"test", "eval"},
    {"validate", "eval"},
    {"evaluate", "eval"},
    {"infer", "predict"},
    {"classify", "predict"},
    {"fit", "train"},
    {"benchmark", "bench"},
};

// Flags of other trainers for what is not a flag here, in commands that train.
constexpr const char* kPlainData = "give the data set as an argument, without a flag";
constexpr const char* kLaunch = "start several processes with: redline launch -g N -- train …";
constexpr const char* kAlways = "Redline always does; leave it out";
constexpr const char* kTracking = "send the run to a tracker with: python -m redline.track wandb RUN";
constexpr const char* kEvaluate = "measure a network with: redline eval RUN [DATA]";
constexpr std::pair<std::string_view, const char*> kNoFlag[] = {
    {"--data", kPlainData},     {"--data-dir", kPlainData},   {"--data-path", kPlainData},
    {"--dataset", kPlainData},  {"--gpus", kLaunch},          {"--ngpus", kLaunch},
    {"--world-size", kLaunch},  {"--dist-url", kLaunch},      {"--nproc-per-node", kLaunch},
    {"--evaluate", kEvaluate},  {"--eval-only", kEvaluate},   {"--test-only", kEvaluate},
    {"--compile", kAlways},     {"--channels-last", kAlways}, {"--wandb", kTracking},
    {"--use-wandb", kTracking}, {"--log-wandb", kTracking}};

std::string advice_for(const std::string& word, CLI::App* command) {
  if (command->get_option_no_throw("data") == nullptr) return {};
  const auto* found = std::ranges::find(kNoFlag, word, &std::pair<std::string_view, const char*>::first);
  return found == std::end(kNoFlag) ? "" : found->second;
}

// What an unknown word probably means; empty if there is no guess.
std::string meant_by(std::string word, const std::vector<std::string>& names) {
  if (word.starts_with("--")) std::ranges::replace(word, '_', '-');
  for (const auto& [theirs, ours] : kElsewhere) {
    if (word == theirs && std::ranges::find(names, ours.substr(0, ours.find(' '))) != names.end())
      return std::string(ours);
  }
  return nearest(word, names);
}

// Makes a number what it looks like, or says why it is none: the parser takes "" (an unset variable of a
// script) for 0, "010" for 8, and a number that is too large for the largest there is.
std::string as_decimal(std::string& number) {
  const std::size_t first = number.find_first_not_of("+-");
  const bool whole =
      first != std::string::npos && number.find_first_not_of("0123456789", first) == std::string::npos;
  if (whole) number.erase(first, std::min(number.find_first_not_of('0', first), number.size() - 1) - first);
  errno = 0;
  if (whole) std::strtoll(number.c_str(), nullptr, 10);
  return number.empty() || errno == ERANGE ? fmt::format("'{}' is not a valid value", number) : "";
}

// If a flag is given twice, the last value wins, so that scripts can append flags to a command. Numbers are
// read strictly.
void set_rules(CLI::App& command) {
  constexpr int kAll = 16;  // a list takes all of its values
  for (CLI::Option* option :
       command.get_options([](const CLI::Option* one) { return !one->get_positional(); })) {
    const int most = option->get_items_expected_max();
    if (most > 0 && most < kAll) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (most >= kAll && option->get_delimiter() != '\0')
      option->trigger_on_parse();  // forgets the list before
    if (takes_numbers(*option)) option->transform(CLI::Validator(as_decimal, ""));
  }
  for (CLI::App* sub : command.get_subcommands([](CLI::App*) { return true; })) set_rules(*sub);
}

// Replaces the parser's own messages where they would confuse.
std::string reword(const std::string& message) {
  static const std::regex no_value("^(-\\S+): \\d+ required .*missing$");
  static const std::regex not_converted("^Could not convert: (\\S+) = (.*)$");
  static const std::regex not_listed("^(\\S+): (.*) not in \\{(.*)\\}$");
  std::smatch match;
  if (std::regex_match(message, match, no_value)) return fmt::format("{} needs a value", match.str(1));
  if (std::regex_match(message, match, not_converted)) {
    return fmt::format("{}: '{}' is not a valid value", match.str(1), match.str(2));
  }
  if (std::regex_match(message, match, not_listed)) {
    const std::string choices = std::regex_replace(match.str(3), std::regex(","), ", ");
    return fmt::format("{} '{}' is not known; choose from {}", match.str(1), match.str(2), choices);
  }
  return message;
}

// Whether a word stands where a command should, as in "trian --help".
bool names_unknown_command(CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining(true);
  return !unknown.empty() && !unknown.front().starts_with('-') &&
         !names_to_suggest(chosen_command(app), /*flags=*/false).empty();
}

// What is wrong with the command line, in a sentence.
std::string explain(CLI::App& app, const CLI::ParseError& error) {
  CLI::App* command = chosen_command(app);
  std::vector<std::string> unknown = app.remaining(true);
  unknown.erase(std::ranges::find(unknown, "--"), unknown.end());  // after it: words of another command
  if (unknown.empty()) {
    if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) return reword(error.what());
    if (!command->get_subcommands([](CLI::App*) { return true; }).empty())
      return fmt::format("'{}' needs a command", full_name(command));
    const std::string message = error.what(), missing = message.substr(0, message.find(' '));
    return fmt::format("'{}' needs {}", full_name(command),
                       missing.starts_with('-') ? missing : "<" + missing + ">");
  }
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  const bool is_flag = word.starts_with('-');
  const std::vector<std::string> names = names_to_suggest(command, is_flag);
  const char* kind = is_flag ? "flag" : names.empty() ? "argument" : "command";
  std::string text = fmt::format("unknown {} '{}'", kind, word);
  if (const std::string advice = advice_for(word, command); !advice.empty())
    return fmt::format("{}; {}", text, advice);
  const std::string meant = meant_by(word, names);
  if (!meant.empty()) text += fmt::format("; did you mean {}?", meant);
  return text;
}

// Results go to stdout, so a full disk or a closed pipe there is a failure of the command.
void finish_stdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw IoError("cannot write to standard output: {}", std::generic_category().message(errno));
  }
}

// The words for the parser, last one first, as it expects.
std::vector<std::string> words_to_parse(const Context& context) {
  std::vector<std::string> words(context.arguments.begin() + 1, context.arguments.end());
  if (!words.empty() && words.front() == "help") {  // as other programs have it: help train
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  const auto rest = std::ranges::find(words, "--");
  std::vector<std::string> named;  // words before it other than flags
  std::copy_if(words.begin(), rest, std::back_inserter(named),
               [](const std::string& word) { return !word.starts_with('-'); });
  const bool cut = std::ranges::any_of(context.read_rest, [&](const std::vector<std::string>& command) {
    return command.size() <= named.size() && std::equal(command.begin(), command.end(), named.begin());
  });
  if (cut) words.erase(rest, words.end());
  std::ranges::reverse(words);
  return words;
}

int parse_and_run(int argc, char** argv, const std::vector<AddCommand>& commands) {
  Context context;
  context.arguments.assign(argv, argv + argc);
  bool verbose = false;
  CLI::App app("Redline trains ResNet image classifiers as fast as the hardware allows.", "redline");
  app.formatter(help_formatter());
  app.footer(kFooter);
  app.set_version_flag("--version", version_text, "Print the version and what it was built with");
  app.add_flag("-v,--verbose", verbose, "Log details to stderr");
  app.add_flag("-q,--quiet", context.quiet, "Log only warnings and errors")->excludes("--verbose");
  app.require_subcommand(1);
  for (AddCommand add : commands) add(app, context);
  set_rules(app);
  try {
    app.parse(words_to_parse(context));
  } catch (const CLI::ParseError& e) {
    const bool success = dynamic_cast<const CLI::Success*>(&e) != nullptr;  // help or version
    if (!success || names_unknown_command(app))
      return fail(ExitCode::usage,
                  fmt::format("{}\nSee '{} --help'.", explain(app, e), full_name(chosen_command(app))));
    const int code = app.exit(e);
    finish_stdout();
    return code;
  }
  set_up_logging(context.quiet ? LogLevel::quiet : verbose ? LogLevel::verbose : LogLevel::normal);
  const int code = context.action();
  if (code == 0) finish_stdout();  // otherwise the exit code says more than a failed write
  return code;
}

}  // namespace

int run(int argc, char** argv, const std::vector<AddCommand>& commands) {
  try {
    return parse_and_run(argc, argv, commands);
  } catch (const Error& e) {
    return fail(e.code(), e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    // An unexpected file system error: a name that is too long, circular links.
    return fail(ExitCode::io, fmt::format("{}: {}", e.path1().string(), e.code().message()));
  } catch (const std::system_error& e) {
    if (std::ferror(stdout) == 0)
      return fail(ExitCode::internal, fmt::format("internal error: {}", e.what()));
    return fail(ExitCode::io, fmt::format("cannot write to standard output: {}", e.code().message()));
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::unavailable, "out of memory; try a smaller --batch-size or --image-size");
  } catch (const std::exception& e) {
    return fail(ExitCode::internal, fmt::format("internal error: {}", e.what()));
  } catch (...) {
    return fail(ExitCode::internal, "internal error: an exception of unknown type");
  }
}

}  // namespace redline::cli
