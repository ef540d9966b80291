#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/forward_options.h"
#include "data/images/decode.h"
#include "data/images/encode.h"
#include "data/prepare/page_text.h"
#include "data/sources/class_list.h"
#include "data/sources/class_words.h"
#include "data/sources/image_list.h"
#include "train/prediction.h"

namespace redline::cli {
namespace {

struct PredictOptions {
  std::string model, format = "table", page, class_names, words;
  std::vector<std::string> images;
  std::size_t top = 5;
  bool averages = false, logits = false;
  train::ForwardOptions forward;
};

struct Named {
  std::vector<std::string> paths;
  std::vector<std::uint8_t> piped;  // the image on standard input, where that is one
};

// A list begins with a path. Every format has a zero byte in its header, and a path has none.
bool is_image(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kHeader = 32;
  const auto header = bytes.first(std::min(bytes.size(), kHeader));
  return data::begins_like_image(bytes) && std::ranges::find(header, 0) != header.end();
}

// One path per line or, as `find -print0` writes them, each ended by a zero byte.
void add_listed(const std::string& list, std::vector<std::string>& paths) {
  const char end = list.find('\0') == std::string::npos ? '\n' : '\0';
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line, end);) {
    // Lists from Windows end their lines in \r\n; a file may have such a name all the same.
    if (line.ends_with('\r') && !std::filesystem::exists(line)) line.pop_back();
    if (!line.empty()) paths.push_back(line);
  }
}

// "-" stands for an image on standard input, or for a list of paths there.
Named read_named(const std::vector<std::string>& named, const std::string& model) {
  Named found;
  for (const std::string& path : named) {
    if (path.starts_with("http://") || path.starts_with("https://"))
      throw UsageError("{} is not on this machine: curl -sSL '{}' | redline predict {} -", path, path, model);
    if (path != data::kPiped) {
      found.paths.push_back(path);
      continue;
    }
    const std::string input(std::istreambuf_iterator<char>(std::cin), {});
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(input.data());
    if (!is_image({bytes, input.size()})) {
      add_listed(input, found.paths);
      continue;
    }
    found.piped.assign(bytes, bytes + input.size());
    found.paths.emplace_back(data::kPiped);
  }
  return found;
}

std::vector<std::string> names_of(const train::TrainedModel& model, const std::string& file) {
  if (file.empty()) return model.weights.class_names;
  std::vector<std::string> names;
  try {
    names = data::parse_class_list(read_file(file));
  } catch (const DataError& error) {
    throw DataError("{}: {}", file, error.what());
  }
  if (static_cast<std::int64_t>(names.size()) != model.weights.classes)
    throw UsageError("{} names {} classes, but the network has {}", file, names.size(),
                     model.weights.classes);
  return names;
}

bool any(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) { return !word.empty(); });
}

// By label; none where nothing says. `model` is a path as load_trained() takes it.
std::vector<std::string> words_of(const std::string& model, const std::vector<std::string>& names,
                                  const std::string& file) {
  namespace fs = std::filesystem;
  if (!file.empty()) {
    std::vector<std::string> words = data::parse_words(read_file(file), names);
    if (!any(words)) throw UsageError("--words {}: it does not mention any class of the network", file);
    return words;
  }
  std::error_code ignored;
  const fs::path folder = fs::canonical(model, ignored);
  for (const fs::path& run : {folder, folder.parent_path().parent_path()})  // of a checkpoint
    if (fs::is_regular_file(run / data::kWordsFile, ignored))
      if (std::vector<std::string> words = data::read_words(run, names); any(words)) return words;
  return {};
}

// The class names of a network; numbers if it has none.
class Names {
 public:
  Names(std::vector<std::string> names, std::vector<std::string> words)
      : names_(std::move(names)), words_(std::move(words)) {}
  std::string operator[](std::size_t label) const {
    return label < names_.size() ? names_[label] : std::to_string(label);
  }
  bool in_words() const { return !words_.empty(); }
  std::string words(std::size_t label) const { return label < words_.size() ? words_[label] : ""; }
  // For people: "goldfish" rather than "n01443537".
  std::string shown(std::size_t label) const {
    const std::string word = data::first_word(words(label));
    return word.empty() ? (*this)[label] : word;
  }

 private:
  std::vector<std::string> names_, words_;
};

// An output format; gets every image in turn.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void add(const train::Prediction& prediction) = 0;
  virtual void finish() {}
};

class PredictionTable final : public Writer {
 public:
  PredictionTable(const Names& names, std::size_t top, const data::RecordSource& images)
      : names_(names), top_(top) {
    constexpr std::size_t kWidest = 60;
    for (std::int64_t i = 0; i < images.count(); ++i)
      width_ = std::max(width_, std::min(kWidest, printable(images.name(i)).size()));
  }
  void add(const train::Prediction& prediction) override {
    std::string line = fmt::format("{:<{}}", printable(prediction.image), width_);
    if (!prediction.error.empty()) line += "  not read: " + printable(prediction.error);
    for (const train::Ranked& one : train::likeliest(prediction.logits, top_))
      line += fmt::format("  {} {:.1f}%", printable(names_.shown(one.label)), 100 * one.probability);
    fmt::print("{}\n", line);
  }

 private:
  const Names& names_;
  std::size_t top_, width_ = 0;
};

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// One line per image and class; with logits, one line per image and a column per class.
class Csv final : public Writer {
 public:
  Csv(const Names& names, std::size_t top, bool logits, std::size_t classes)
      : names_(names), top_(top), logits_(logits) {
    std::string head = "image";
    for (std::size_t i = 0; logits && i < classes; ++i) head += "," + csv_text(names[i]);
    if (!logits)
      head += names.in_words() ? ",rank,class,label,probability,words" : ",rank,class,label,probability";
    fmt::print("{}\n", head);
  }
  void add(const train::Prediction& prediction) override {
    const std::string image = csv_text(prediction.image);
    if (logits_ && prediction.error.empty()) {
      std::string line = image;
      for (const float logit : prediction.logits) line += fmt::format(",{}", logit);
      fmt::print("{}\n", line);
      return;
    }
    int rank = 0;
    for (const train::Ranked& one : train::likeliest(prediction.logits, top_))
      fmt::print("{},{},{},{},{:.6g}{}\n", image, ++rank, csv_text(names_[one.label]), one.label,
                 one.probability, names_.in_words() ? "," + csv_text(names_.words(one.label)) : "");
  }

 private:
  const Names& names_;
  std::size_t top_;
  bool logits_;
};

class JsonLines final : public Writer {
 public:
  JsonLines(const Names& names, std::size_t top, bool logits) : names_(names), top_(top), logits_(logits) {}
  void add(const train::Prediction& prediction) override {
    using Json = nlohmann::ordered_json;
    Json json;
    json["image"] = prediction.image;
    if (!prediction.error.empty()) json["error"] = prediction.error;
    json["predictions"] = Json::array();
    for (const train::Ranked& one : train::likeliest(prediction.logits, top_)) {
      Json& made = json["predictions"].emplace_back();
      made = {{"class", names_[one.label]}, {"label", one.label}, {"probability", one.probability}};
      if (const std::string words = names_.words(one.label); !words.empty()) made["words"] = words;
    }
    if (logits_ && prediction.error.empty()) json["logits"] = prediction.logits;
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

 private:
  const Names& names_;
  std::size_t top_;
  bool logits_;
};

// Images with their predictions, in one self-contained file.
class Page final : public Writer {
 public:
  Page(const Names& names, std::size_t top, std::string file, std::string model)
      : names_(names), top_(top), file_(std::move(file)), model_(std::move(model)) {}
  void add(const train::Prediction& prediction) override {
    ++images_;
    if (prediction.pixels == nullptr || shown_ == kMost) return;
    ++shown_;
    std::string rows;
    for (const train::Ranked& one : train::likeliest(prediction.logits, top_))
      rows += fmt::format(
          "<div style=\"background:linear-gradient(90deg,#4a90d955 {0:.1f}%,transparent {0:.1f}%)\">{1} "
          "<small>{0:.1f}%</small></div>",
          100 * one.probability, data::escaped(names_.shown(one.label)));
    constexpr int kQuality = 85;
    figures_ += fmt::format(
        "<figure><img alt=\"\" src=\"data:image/jpeg;base64,{}\"><figcaption><small>{}</small>{}</figcaption>"
        "</figure>\n",
        data::base64(data::encode_jpeg(prediction.pixels, prediction.size, prediction.size, kQuality)),
        data::escaped(std::filesystem::path(prediction.image).filename().string()), rows);
  }
  void finish() override {
    const std::string page = fmt::format(
        "<!doctype html>\n"
        "<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"generator\" "
        "content=\"{5}\"><title>{0}</title><style>{1}</style></head>\n"
        "<body><h1>{0}</h1>\n"
        "<p>{2} of {3} images, as the network sees them, with its predictions.</p>\n"
        "<main>\n"
        "{4}</main></body></html>\n",
        data::escaped("Predictions of " + model_), data::kImagePageStyle, shown_, images_, figures_,
        program_text());
    write_file_atomically(file_, page);
  }

 private:
  static constexpr int kMost = 1000;  // images: a browser should still open the page

  const Names& names_;
  std::size_t top_;
  std::string file_, model_, figures_;
  int images_ = 0, shown_ = 0;
};

std::unique_ptr<Writer> writer_of(const PredictOptions& options, const Names& names, std::int64_t classes,
                                  const data::RecordSource& images) {
  if (options.format == "csv")
    return std::make_unique<Csv>(names, options.top, options.logits, static_cast<std::size_t>(classes));
  if (options.format == "jsonl") return std::make_unique<JsonLines>(names, options.top, options.logits);
  if (options.logits) throw UsageError("--logits is for other programs: add --format csv or jsonl");
  return std::make_unique<PredictionTable>(names, options.top, images);
}

int run_predict(const PredictOptions& options) {
  const StopSignals signals;
  if (options.top < 1) throw UsageError("--top {} must be at least 1", options.top);
  const train::TrainedModel model = train::load_trained(options.model, options.averages);
  const std::vector<std::string> class_names = names_of(model, options.class_names);
  const Names names(class_names, words_of(options.model, class_names, options.words));
  Named named = read_named(options.images, options.model);
  const std::shared_ptr<const data::RecordSource> images =
      data::list_images(named.paths, std::move(named.piped));
  for (const data::LeftOut& one : images->left_out())
    if (one.image) log_warning("skipped {}, the first {}: {}", describe(one), one.first, one.why);
  std::vector<std::unique_ptr<Writer>> writers;
  writers.push_back(writer_of(options, names, model.weights.classes, *images));
  if (!options.page.empty())
    writers.push_back(std::make_unique<Page>(names, options.top, options.page, options.model));
  const train::PredictionCounts counts =
      train::predict(model, options.forward, images, signals.flag(), [&](const train::Prediction& one) {
        for (const auto& writer : writers) writer->add(one);
      });
  if (counts.stopped) return kSignalExit + signals.signal();
  for (const auto& writer : writers) writer->finish();
  if (counts.unreadable > 0)
    throw DataError("{} of {} images could not be read", counts.unreadable, counts.images);
  return 0;
}

}  // namespace

void add_predict(CLI::App& app, Context& context) {
  CLI::App& command = add_command(
      app, "predict", "Classify images with a trained network",
      {"redline predict runs/first photo.jpg", "redline predict flowers.safetensors photos --page p.html",
       "find photos -name '*.jpg' | redline predict resnet50.pth - --format csv > classes.csv",
       "curl -sSL https://example.com/photo.jpg | redline predict runs/first -"});
  const auto options = std::make_shared<PredictOptions>();
  command
      .add_option("model", options->model,
                  "Run folder (its latest checkpoint), checkpoint, .safetensors or .pth file")
      ->type_name("PATH")
      ->required();
  command
      .add_option("images", options->images,
                  "Images, folders of images, or - for an image or a list of paths on standard input")
      ->required();
  command.add_option("--top,-k", options->top, "Classes to print for each image (default: 5)")
      ->type_name("N");
  command.add_option("--format", options->format, "Output format (default: table)")
      ->check(CLI::IsMember({"table", "csv", "jsonl"}))
      ->type_name("table|csv|jsonl");
  command.add_flag("--logits", options->logits, "Print the logits of all classes (csv and jsonl)");
  command.add_option("--page", options->page, "Also write an HTML page with thumbnails")
      ->type_name("FILE.html");
  command
      .add_option("--class-names", options->class_names,
                  "File with one class name per line, in label order (default: the names from training)")
      ->type_name("FILE");
  command
      .add_option(
          "--words", options->words,
          "File that translates class names: ImageNet's words.txt or LOC_synset_mapping.txt (default: "
          "the one that came with the training data)")
      ->type_name("FILE");
  command.add_flag("--ema", options->averages, "Use the moving average of the weights (--model-ema)");
  add_forward_options(command, options->forward);
  on_run(command, context, [options] { return run_predict(*options); });
}

}  // namespace redline::cli
