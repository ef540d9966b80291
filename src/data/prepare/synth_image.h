// The pictures of `redline data synth`: labelled images that take a network to classify.
//
// A class is a motif (stripes, checkers, dots, …) that tiles the picture, or for large class counts a motif
// with patches of another motif in it. Place, size, slant, colours, lighting, clutter and noise are random
// and the same for all classes; each picture's mean and spread per colour channel are drawn from one
// distribution, so colours say nothing about the class. No motif is the mirror image of another, and all
// repeat, so flips and crops keep the class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"

namespace redline::data {

// The largest number of classes.
int max_synth_classes();

// Names for a data set of `count` classes, in alphabetical order: names[label]. They are fit for folder
// names.
std::vector<std::string> synth_class_names(int count);

// Draws pictures of the classes of one data set. Immutable; any thread.
class SynthArtist {
 public:
  explicit SynthArtist(int classes);

  const std::vector<std::string>& names() const { return names_; }

  // [height, width, 3] RGB; the same arguments give the same pixels.
  std::vector<std::uint8_t> draw(int label, int width, int height, Random random) const;

 private:
  struct Recipe {
    int ground = 0;   // motif
    int figure = -1;  // motif of the patches; -1: none
    int patch = 0;    // shape of the patches
  };
  friend std::vector<std::string> synth_class_names(int count);
  static std::vector<std::pair<std::string, Recipe>> recipes(int count);

  std::vector<std::string> names_;
  std::vector<Recipe> recipes_;
};

}  // namespace redline::data
