#include "train/data_agreement.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/sha256.h"

namespace redline::train {
namespace {

// What must be equal on all machines about a data set, whatever its path.
struct Digests {
  std::string classes, samples;
};

Digests digests_of(const data::RecordSource& records) {
  Sha256 classes, samples;
  for (const std::string& name : records.classes()) {
    classes.update(name);
    classes.update(std::string_view("\0", 1));
  }
  for (std::int64_t i = 0; i < records.count(); ++i) {
    const std::string name = records.name(i);  // where it lies may differ, what it is called may not
    samples.update(std::string_view(name).substr(name.rfind('/') + 1));
    samples.update(fmt::format("\n{}\n", records.label(i)));
  }
  return {classes.finish(), samples.finish()};
}

// Ranks exchange numbers: 48 bits of the digest are one exactly.
void agree_on_digest(Ranks& ranks, const std::string& digest, const std::string& what) {
  double value = 0;
  for (const char byte : digest.substr(0, 6)) value = value * 256 + static_cast<unsigned char>(byte);
  ranks.must_agree(value, what, Ranks::Shown::no);
}

}  // namespace

void agree_on_data(Ranks& ranks, const Setup& setup) {
  if (ranks.alone()) return;
  for (const auto& [records, name] :
       {std::pair{setup.train_records.get(), "training"}, std::pair{setup.val_records.get(), "held-out"}}) {
    const Digests digests = records == nullptr ? Digests() : digests_of(*records);
    agree_on_digest(ranks, digests.classes, fmt::format("the class names of the {} set", name));
    agree_on_digest(ranks, digests.samples, fmt::format("the file names or labels of the {} set", name));
  }
}

}  // namespace redline::train
