#include "golden.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace redline::golden {
namespace {

std::vector<Summary> summaries(const nlohmann::json& rows) {
  std::vector<Summary> result;
  for (const auto& row : rows) {
    result.push_back({row.at("name"), row.at("norm"), row.at("sum"), row.at("products"), row.at("samples")});
  }
  return result;
}

}  // namespace

Golden load_golden(const std::string& model) {
  // The variable is for tests that run on another machine than they were built on.
  const char* folder = std::getenv("REDLINE_GOLDEN_DIR");
  const std::string path = std::string(folder ? folder : REDLINE_GOLDEN_DIR) + "/" + model + ".json";
  std::ifstream file(path);
  if (!file) throw IoError("cannot read {}", path);
  const nlohmann::json json = nlohmann::json::parse(file);
  Golden g;
  g.model = json.at("model");
  g.classes = json.at("classes");
  g.batch = json.at("batch");
  g.size = json.at("size");
  g.batches = json.at("batches");
  g.smoothing = json.at("smoothing");
  g.lr = json.at("lr");
  g.momentum = json.at("momentum");
  g.weight_decay = json.at("weight_decay");
  g.nesterov = json.at("nesterov");
  json.at("state_names").get_to(g.state_names);
  json.at("logits").get_to(g.logits);
  json.at("eval_logits").get_to(g.eval_logits);
  json.at("losses").get_to(g.losses);
  json.at("correct").get_to(g.correct);
  json.at("eval_correct").get_to(g.eval_correct);
  g.gradients = summaries(json.at("gradients"));
  g.statistics = summaries(json.at("statistics"));
  g.parameters = summaries(json.at("parameters"));
  return g;
}

std::vector<std::uint64_t> hashes(const std::string& name, std::size_t count) {
  std::uint64_t state = 0xcbf29ce484222325U;  // FNV-1a of the name
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::vector<std::uint64_t> result(count);
  for (std::uint64_t& z : result) {  // SplitMix64
    z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
  }
  return result;
}

std::vector<double> symmetric(const std::string& name, std::size_t count) {
  std::vector<double> result;
  result.reserve(count);
  for (std::uint64_t hash : hashes(name, count)) {
    result.push_back(static_cast<double>(hash >> 40) * 0x1.0p-23 - 1.0);
  }
  return result;
}

std::vector<float> initial(const graph::Tensor& tensor, const std::string& model) {
  const std::string& name = tensor.name;
  const graph::Shape& shape = tensor.shape;
  const std::string branch_end = model == "resnet18" ? "bn2.weight" : "bn3.weight";
  double offset = 0.0, scale = 0.125;
  if (name.ends_with("running_var")) {
    offset = 1.0, scale = 0.5;
  } else if (shape.rank() == 4) {
    scale = std::sqrt(6.0 / static_cast<double>(shape[1] * shape[2] * shape[3]));
  } else if (shape.rank() == 2) {
    scale = std::sqrt(3.0 / static_cast<double>(shape[1]));
  } else if (name.ends_with(".weight")) {
    const double size = name.starts_with("layer") && name.ends_with(branch_end) ? 0.25 : 1.0;
    offset = size, scale = size * 0.25;
  }
  std::vector<float> values;
  for (double unit : symmetric(name, static_cast<std::size_t>(shape.elements()))) {
    values.push_back(static_cast<float>(offset + scale * unit));
  }
  return values;
}

std::vector<std::uint8_t> images(const Golden& golden, int batch) {
  const auto count = static_cast<std::size_t>(golden.batch), size = static_cast<std::size_t>(golden.size);
  const std::size_t blocks = size / 8;
  const auto coarse = hashes("coarse" + std::to_string(batch), count * blocks * blocks * 3);
  const auto fine = hashes("fine" + std::to_string(batch), count * size * size * 3);
  std::vector<std::uint8_t> bytes;
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t y = 0; y < size; ++y) {
      for (std::size_t x = 0; x < size; ++x) {
        for (std::size_t c = 0; c < 3; ++c) {
          const std::uint64_t block = coarse[((n * blocks + y / 8) * blocks + x / 8) * 3 + c] >> 56;
          const std::uint64_t pixel = fine[((n * size + y) * size + x) * 3 + c] >> 56;
          bytes.push_back(static_cast<std::uint8_t>((3 * block + pixel) >> 2));
        }
      }
    }
  }
  return bytes;
}

std::vector<std::int32_t> labels(const Golden& golden, int batch) {
  std::vector<std::int32_t> result;
  const auto count = static_cast<std::size_t>(golden.batch);
  for (std::uint64_t hash : hashes("labels" + std::to_string(batch), count)) {
    result.push_back(static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(golden.classes)));
  }
  if (batch == 1) result.back() = -1;
  return result;
}

Summary summarise(const Summary& like, const std::vector<float>& values) {
  Summary result{like.name, 0.0, 0.0, {}, {}};
  for (float value : values) {
    result.norm += static_cast<double>(value) * static_cast<double>(value);
    result.sum += static_cast<double>(value);
  }
  result.norm = std::sqrt(result.norm);
  for (std::size_t i = 0; i < like.products.size(); ++i) {
    const auto vector = symmetric(like.name + "#product" + std::to_string(i), values.size());
    double product = 0.0;
    for (std::size_t k = 0; k < values.size(); ++k) product += vector[k] * static_cast<double>(values[k]);
    result.products.push_back(product);
  }
  for (std::uint64_t hash : hashes(like.name + "#samples", like.samples.size())) {
    result.samples.push_back(static_cast<double>(values[hash % values.size()]));
  }
  return result;
}

}  // namespace redline::golden
