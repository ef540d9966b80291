#include "weights/pytorch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/zip_directory.h"
#include "weights/pickle.h"

namespace redline::weights {
namespace {

constexpr std::array<std::uint8_t, 4> kZip = {'P', 'K', 3, 4};
// PROTO 2, LONG1 of ten bytes: torch's magic number.
constexpr std::array<std::uint8_t, 14> kStream = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c,
                                                  0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

template <std::size_t kSize>
bool begins_with(const RandomFile& file, const std::array<std::uint8_t, kSize>& magic) {
  std::array<std::uint8_t, kSize> bytes{};
  if (file.size() < kSize) return false;
  file.read(0, bytes);
  return bytes == magic;
}

std::vector<std::uint8_t> read_member(const RandomFile& file, const ZipMember& member, std::uint64_t most) {
  if (member.deflated || member.size != member.packed)
    throw DataError("{} is compressed, which torch.save never does: load and save it again", member.name);
  if (member.size > most) throw DataError("{} has {} bytes", member.name, member.size);
  std::vector<std::uint8_t> bytes(member.size);
  file.read(content_offset(file, member), bytes);
  return bytes;
}

bool is_contiguous(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t axis = tensor.shape.size(); axis-- > 0;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

}  // namespace

bool is_pytorch(const RandomFile& file) { return begins_with(file, kZip) || begins_with(file, kStream); }

PytorchReader::PytorchReader(const std::filesystem::path& path) : file_(path) {
  try {
    if (begins_with(file_, kZip))
      open_zip();
    else
      open_stream();
  } catch (const DataError& error) {
    throw DataError("cannot read {} as a state dict: {}", path.string(), error.what());
  } catch (const IoError& error) {
    throw IoError("{}: {}", path.string(), error.what());
  }
}

void PytorchReader::add(const PickledTensor& tensor, std::uint64_t storage, std::vector<Entry>& entries,
                        std::vector<Place>& places) const {
  const std::uint64_t element = size_of(tensor.type);
  std::uint64_t elements = 1, last = 0;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    elements *= static_cast<std::uint64_t>(tensor.shape[axis]);
    if (tensor.shape[axis] > 0)
      last += static_cast<std::uint64_t>(tensor.shape[axis] - 1) *
              static_cast<std::uint64_t>(tensor.strides[axis]);
  }
  Place place;
  place.begin = storage + tensor.offset * element;
  place.span = elements == 0 ? 0 : last + 1;
  if (!is_contiguous(tensor)) place.strides = tensor.strides;
  entries.push_back({tensor.name, tensor.type, tensor.shape, place.begin, elements * element});
  places.push_back(std::move(place));
}

void PytorchReader::take_places(std::vector<Entry> entries, std::vector<Place> places) {
  take(std::move(entries), {});
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string& name = this->entries()[i].name;
    if (!places_.emplace(name, std::move(places[i])).second) throw DataError("it holds '{}' twice", name);
  }
}

void PytorchReader::open_zip() {
  std::map<std::string, ZipMember> members;
  std::string folder;
  for (ZipMember& member : list_zip(file_)) {
    const std::size_t slash = member.name.find('/');
    if (slash != std::string::npos && member.name.substr(slash) == "/data.pkl")
      folder = member.name.substr(0, slash + 1);
    std::string name = member.name;
    members.emplace(std::move(name), std::move(member));
  }
  if (folder.empty()) throw DataError("the zip has no data.pkl, as torch.save writes it");
  if (const auto order = members.find(folder + "byteorder"); order != members.end()) {
    const std::vector<std::uint8_t> text = read_member(file_, order->second, 16);
    if (std::string(text.begin(), text.end()) != "little")
      throw DataError("its numbers are not little endian");
  }
  const std::vector<std::uint8_t> pickle =
      read_member(file_, members.at(folder + "data.pkl"), kMostPickleBytes);
  std::vector<Entry> entries;
  std::vector<Place> places;
  for (const PickledTensor& tensor : parse_state_dict(pickle).tensors) {
    const auto found = members.find(folder + "data/" + tensor.storage);
    if (found == members.end()) throw DataError("the storage of '{}' is missing", tensor.name);
    const ZipMember& member = found->second;
    if (member.deflated || member.size != member.packed ||
        member.size / size_of(tensor.type) < tensor.storage_size)
      throw DataError("the storage of '{}' is compressed, or has the wrong size", tensor.name);
    add(tensor, content_offset(file_, member), entries, places);
  }
  take_places(std::move(entries), std::move(places));
}

// Five pickles (magic number, protocol, system, the object, keys of storages), then for each key the number
// of elements and the elements.
void PytorchReader::open_stream() {
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(file_.size(), kMostPickleBytes));
  file_.read(0, bytes);
  const std::span<const std::uint8_t> all(bytes);
  std::size_t at = 0, end = 0;
  for (int i = 0; i < 3; ++i, at += end) parse_texts(all.subspan(at), end);
  const StateDict dict = parse_state_dict(all.subspan(at), &end);
  at += end;
  const std::vector<std::string> keys = parse_texts(all.subspan(at), end);
  struct Storage {
    std::uint64_t begin = 0, elements = 0;
  };
  std::map<std::string, Storage> storages;
  std::uint64_t place = at + end;
  for (const std::string& key : keys) {
    const auto type = dict.storages.find(key);
    if (type == dict.storages.end()) throw DataError("one of its storages belongs to no tensor");
    std::array<std::uint8_t, 8> count{};
    file_.read(place, count);
    Storage storage{place + count.size(), 0};
    for (std::size_t i = count.size(); i-- > 0;) storage.elements = storage.elements << 8 | count[i];
    const std::uint64_t element = size_of(type->second);
    if (storage.elements > (file_.size() - storage.begin) / element) throw DataError("it is cut off");
    place = storage.begin + storage.elements * element;
    storages[key] = storage;
  }
  std::vector<Entry> entries;
  std::vector<Place> places;
  for (const PickledTensor& tensor : dict.tensors) {
    const auto storage = storages.find(tensor.storage);
    if (storage == storages.end() || storage->second.elements < tensor.storage_size ||
        dict.storages.at(tensor.storage) != tensor.type)
      throw DataError("the storage of '{}' is missing, or has the wrong size", tensor.name);
    add(tensor, storage->second.begin, entries, places);
  }
  take_places(std::move(entries), std::move(places));
}

void PytorchReader::read(const Entry& entry, std::span<float> values) const {
  check(values.size() == entry.elements(), "'{}' has {} elements, not {}", entry.name, entry.elements(),
        values.size());
  const Place& place = places_.at(entry.name);
  const auto fill = [&](std::size_t at, std::span<std::byte> bytes) {
    try {
      file_.read(place.begin + at, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
    } catch (const Error& error) {
      throw IoError("{}: {}", path().string(), error.what());
    }
  };
  if (place.strides.empty()) return read_floats(entry, values, fill);
  std::vector<float> stored(place.span);  // as large as the storage at most
  read_floats(entry, stored, fill);
  Dimensions index(entry.shape.size(), 0);
  for (float& value : values) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * place.strides[axis];
    value = stored[static_cast<std::size_t>(at)];
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < entry.shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace redline::weights
