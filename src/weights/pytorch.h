// State dicts as torch.save writes them (.pth, .pt): a zip of a pickle and the storages of its tensors, or
// before PyTorch 1.6 pickles and storages one after another. Nothing in a pickle is run: see pickle.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/random_file.h"
#include "weights/tensor_file.h"

namespace redline::weights {

struct PickledTensor;

// Whether a file begins like one of torch.save.
bool is_pytorch(const RandomFile& file);

class PytorchReader final : public TensorFile {
 public:
  // Reads the pickle and checks the position of every tensor. Throws IoError if the file cannot be read,
  // DataError if it has no state dict, or is damaged or hostile; both name it.
  explicit PytorchReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const override { return file_.path(); }
  void read(const Entry& entry, std::span<float> values) const override;

 private:
  struct Place {
    std::uint64_t begin = 0;  // byte of the file where the first element lies
    Dimensions strides;       // in elements; empty where elements lie one after another
    std::uint64_t span = 0;   // elements from the first to the last
  };

  void open_zip();
  void open_stream();
  void add(const PickledTensor& tensor, std::uint64_t storage, std::vector<Entry>& entries,
           std::vector<Place>& places) const;
  void take_places(std::vector<Entry> entries, std::vector<Place> places);

  RandomFile file_;
  std::map<std::string, Place> places_;  // by name
};

}  // namespace redline::weights
