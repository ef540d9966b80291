// MATLAB 5 files, as far as lists of records need them: variables that are numbers, text, and struct arrays
// of these.
//
// Implemented here because files are untrusted: every length is checked against the available bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

struct MatArray {
  enum class Kind { number, text, structure, other };

  Kind kind = Kind::other;
  std::string name;  // of a variable; empty inside a struct
  std::vector<std::int64_t> dims;
  std::vector<double> numbers;      // of a number array, column by column
  std::string text;                 // of a text array; characters beyond ASCII become '?' where not UTF-8
  std::vector<std::string> fields;  // of a struct array
  std::vector<MatArray> cells;      // of a struct array: element by element, each with all its fields

  std::int64_t elements() const;  // the product of dims
  // A field of an element of a struct array; nullptr when there is no such field.
  const MatArray* field(std::int64_t element, std::string_view name) const;
};

MatArray mat_number(double value);
MatArray mat_text(std::string value);

// The variable of this name. Throws DataError when the file is none or damaged, or has no such variable.
MatArray read_mat5(std::span<const std::uint8_t> file, std::string_view variable);

// A file with one variable, uncompressed; the same variable gives the same bytes. Numbers, text and structs
// only.
std::vector<std::uint8_t> write_mat5(const MatArray& variable);

}  // namespace redline::data
