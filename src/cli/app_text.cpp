#include "cli/app_text.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/ranges.h>

#include "cli/option_text.h"

namespace redline::cli {
namespace {

// Called for every command with its words ("data", "synth"); first for the program itself, with none.
using Visit = std::function<void(const CLI::App& command, const std::vector<std::string>& words)>;

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
}

void visit(const CLI::App& app, std::vector<std::string>& words, const Visit& act) {
  act(app, words);
  for (const CLI::App* sub : subcommands(app)) {
    words.push_back(sub->get_name());
    visit(*sub, words, act);
    words.pop_back();
  }
}

void visit(const CLI::App& app, const Visit& act) {
  std::vector<std::string> words;
  visit(app, words, act);
}

// "-b", "--batch-size"; empty for a positional argument.
std::vector<std::string> flags(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// The values of an option with a fixed set of them: its type is then "sgd|lars".
std::vector<std::string> choices(const CLI::Option& option) {
  const std::string type = value_text(option);
  if (type.find('|') == std::string::npos) return {};
  return CLI::detail::split(type, '|');
}

std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  // A line must not begin with a control character.
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// A value that may be broken between its choices, which can be longer than a line.
std::string roff_value(const std::string& value) {
  std::string out;
  for (const char c : roff(value)) out += c == '|' ? std::string("|\\:") : std::string(1, c);
  return out;
}

void manual_options(const CLI::App& command, std::string& text) {
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> names = flags(*option);
    const std::string value = value_text(*option);
    const std::string head = names.empty() ? option->get_name() : fmt::format("{}", fmt::join(names, ", "));
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(head),
                        value.empty() || names.empty() ? "" : " \\fI" + roff_value(value) + "\\fR",
                        roff(description(*option)));
  }
}

// Preformatted lines, indented.
void manual_block(const std::string& block, std::string& text) {
  text += ".PP\n.nf\n";
  for (const std::string& line : CLI::detail::split(block, '\n')) {
    if (!line.empty()) text += roff(line) + "\n";
  }
  text += ".fi\n";
}

std::string shell_name(const std::vector<std::string>& words) {
  return words.empty() ? "redline" : fmt::format("redline_{}", fmt::join(words, "_"));
}

std::string in_single_quotes(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + out + "'";
}

// Escapes what zsh's _arguments would take for its own syntax.
std::string zsh_text(std::string text) {
  for (const char special : {'\\', '[', ']', ':'}) {
    std::string out;
    for (const char c : text) out += c == special ? std::string{'\\', c} : std::string(1, c);
    text = out;
  }
  return text;
}

// Empty for an argument that can be any file: those of a command have one line in common.
std::string zsh_argument(const CLI::Option& option) {
  std::string text;
  const std::vector<std::string> names = flags(option), values = choices(option);
  const std::string action = values.empty() ? "_files" : fmt::format("({})", fmt::join(values, " "));
  if (names.empty() && !values.empty())
    return fmt::format("    {} \\\n", in_single_quotes(":" + zsh_text(option.get_name()) + ":" + action));
  for (const std::string& name : names) {
    std::string spec = name + "[" + zsh_text(description(option)) + "]";
    if (takes_value(option)) spec += ":" + zsh_text(value_text(option)) + ":" + action;
    text += fmt::format("    {} \\\n", in_single_quotes(spec));
  }
  return text;
}

}  // namespace

std::string manual_page(const CLI::App& app, const std::string& version) {
  std::string text = fmt::format(
      ".TH REDLINE 1 \"\" \"redline {}\" \"User Commands\"\n.ad l\n.SH NAME\nredline \\- train ResNet image "
      "classifiers\n"
      ".SH SYNOPSIS\n.B redline\n\\fIcommand\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n{}\n",
      version, roff(app.get_description()));
  visit(app, [&](const CLI::App& command, const std::vector<std::string>& words) {
    text += words.empty() ? ".SH OPTIONS\n"
                          : fmt::format(".SH REDLINE {}\n{}\n",
                                        CLI::detail::to_lower(fmt::format("{}", fmt::join(words, " "))),
                                        roff(command.get_description()));
    manual_options(command, text);
    if (!words.empty()) manual_block(command.get_footer(), text);
  });
  text += ".SH EXIT STATUS AND EXAMPLE\n";
  manual_block(app.get_footer(), text);
  return text;
}

std::string bash_completion(const CLI::App& app) {
  std::string text =
      "# bash completion for redline; made by `redline completion bash`\n"
      "_redline() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=redline i\n"
      // "--model=res" comes as three words.
      "  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; "
      "fi\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${command}_${COMP_WORDS[i]} in\n";
  std::string options, values;
  visit(app, [&](const CLI::App& command, const std::vector<std::string>& words) {
    const std::string name = shell_name(words);
    if (!words.empty()) text += fmt::format("      {}) command={} ;;\n", name, name);
    std::vector<std::string> offered;
    for (const CLI::App* sub : subcommands(command)) offered.push_back(sub->get_name());
    for (const CLI::Option* option : command.get_options()) {
      const std::vector<std::string> names = flags(*option), known = choices(*option);
      const std::vector<std::string>& more = names.empty() ? known : names;
      offered.insert(offered.end(), more.begin(), more.end());
      if (known.empty()) continue;
      for (const std::string& flag : names)
        values += fmt::format("    {}:{}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n", name,
                              flag, fmt::join(known, " "));
    }
    options += fmt::format("    {}) words=\"{}\" ;;\n", name, fmt::join(offered, " "));
  });
  // What follows -- is a command of its own, or the options of one.
  text +=
      "      redline_launch_--) command=redline ;;\n      redline_bench_ab_--) command=redline_train ;;\n";
  text += "    esac\n  done\n  case $command:$before in\n" + values +
          "  esac\n  local words=\n  case $command in\n" + options +
          "  esac\n"
          "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "  if [[ $word != -* ]]; then COMPREPLY+=($(compgen -f -- \"$word\")); fi\n"
          "}\n"
          "complete -o filenames -F _redline redline\n";
  return text;
}

std::string zsh_completion(const CLI::App& app) {
  std::string text = "#compdef redline\n# zsh completion for redline; made by `redline completion zsh`\n\n";
  visit(app, [&](const CLI::App& command, const std::vector<std::string>& words) {
    text += fmt::format("_{}() {{\n", shell_name(words));
    const auto subs = subcommands(command);
    std::string arguments;
    for (const CLI::Option* option : command.get_options()) arguments += zsh_argument(*option);
    if (subs.empty()) {
      text += "  _arguments \\\n" + arguments + "    '*:file:_files'\n}\n\n";
      return;
    }
    text += "  local state line\n  _arguments -C \\\n" + arguments +
            "    '1:command:->command' '*::argument:->rest'\n";
    text += "  case $state in\n    command)\n      local -a commands=(\n";
    for (const CLI::App* sub : subs)
      text += fmt::format("        {}\n",
                          in_single_quotes(sub->get_name() + ":" + zsh_text(sub->get_description())));
    text += "      )\n      _describe command commands ;;\n    rest)\n      case $line[1] in\n";
    for (const CLI::App* sub : subs)
      text += fmt::format("        {}) _{}_{} ;;\n", sub->get_name(), shell_name(words), sub->get_name());
    text += "      esac ;;\n  esac\n}\n\n";
  });
  return text + "_redline \"$@\"\n";
}

}  // namespace redline::cli
