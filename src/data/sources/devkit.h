// ImageNet's development kit, ILSVRC2012_devkit_t12.tar.gz: the only source for the classes of validation
// images.
//
// Its data/meta.mat lists the classes, each with a number; its data/ILSVRC2012_validation_ground_truth.txt
// has a line for every validation image, with the number of its class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

struct Synset {
  int id = 0;         // ILSVRC2012_ID, from 1
  std::string wnid;   // "n01440764": letters, digits, '_' and '-'
  std::string words;  // "tench, Tinca tinca"
  bool leaf = true;   // a class of the challenge, and not a group of them

  bool operator==(const Synset&) const = default;
};

struct Devkit {
  std::vector<Synset> synsets;    // in the order of meta.mat; ids are distinct, and so are leaves' wnids
  std::vector<int> ground_truth;  // the id of the class of validation image i + 1; each is a leaf's

  bool operator==(const Devkit&) const = default;
};

// path: the archive, or the folder it was unpacked to. Throws IoError if the file cannot be read, DataError
// if it is not a development kit or is damaged; both name the file. Other members are skipped.
Devkit read_devkit(const std::filesystem::path& path);

// The classes in meta.mat's bytes, and the ids in the ground truth's. Throw DataError.
std::vector<Synset> parse_meta(std::span<const std::uint8_t> bytes);
std::vector<int> parse_ground_truth(std::string_view text);

// The bytes of a development kit that read_devkit() reads; the same devkit gives the same bytes.
std::vector<std::uint8_t> serialize_devkit(const Devkit& devkit);

}  // namespace redline::data
