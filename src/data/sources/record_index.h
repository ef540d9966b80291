// An index of the samples in large files (tars, record files), built once and stored next to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random_file.h"
#include "data/file.h"

namespace redline::data {

struct RecordIndex {
  // A file with samples, and its state when it was indexed.
  struct Container {
    std::string name;  // in the data set's folder
    std::uint64_t size = 0;
    std::int64_t modified_ns = 0;

    bool operator==(const Container&) const = default;
  };
  struct Entry {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint32_t container = 0;
    std::int32_t label = 0;  // from 0

    bool operator==(const Entry&) const = default;
  };

  // Images in the containers that are of a format that is not read.
  struct Skipped {
    std::string what;  // ".avif images"
    std::uint64_t count = 0;
    std::string first;

    bool operator==(const Skipped&) const = default;
  };

  std::vector<Container> containers;
  std::vector<Entry> entries;
  std::string names;                   // of the entries, each ended by a zero; empty where they have none
  std::vector<std::uint64_t> name_at;  // where each begins in names
  std::vector<std::string> classes;    // by label
  std::int32_t first_label = 0;        // what label 0 is called inside the containers: 0 or 1
  std::vector<std::string> damage;     // parts of the containers that could not be listed, with the reason
  std::vector<Skipped> skipped;

  void add_name(std::string_view name);
  std::string_view name(std::size_t entry) const;  // empty where there is none

  bool operator==(const RecordIndex&) const = default;
};

// The bytes of an entry, in `memory`; `file` is its container. Throws DataError for one of more than
// `max_bytes`, and IoError.
std::span<const std::uint8_t> read_entry(const RandomFile& file, const RecordIndex::Entry& entry,
                                         std::int64_t max_bytes, FileBytes& memory);

// Reads a stored index. False if there is none, it is damaged or of another version, or the containers have
// changed: then it must be built.
bool load_index(const std::filesystem::path& path, const std::vector<RecordIndex::Container>& containers,
                RecordIndex& index);

// Stores an index. If the folder cannot be written to, only logs that: the index is an optimisation.
void save_index(const std::filesystem::path& path, const RecordIndex& index);

}  // namespace redline::data
