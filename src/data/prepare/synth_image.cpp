#include "data/prepare/synth_image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"

namespace redline::data {
namespace {

// A motif is a function on the plane, periodic in both directions with period 1: negative inside the figure,
// positive outside, about a distance in periods near the edge.
using Shape = double (*)(double u, double v);

double fraction(double x) { return x - std::floor(x); }
double zigzag(double x) { return std::fabs(fraction(x) - 0.5) * 2; }  // 1 at whole numbers, 0 between
double stripe(double x) { return zigzag(x) * 0.5 - 0.25; }            // half inside, half outside

double bars(double, double v) { return stripe(v); }
double pillars(double u, double) { return stripe(u); }
double checkers(double u, double v) {
  const double a = stripe(u), b = stripe(v);
  const double edge = std::min(std::fabs(a), std::fabs(b));
  return (a < 0) == (b < 0) ? -edge : edge;
}
double dots(double u, double v) { return std::hypot(fraction(u) - 0.5, fraction(v) - 0.5) - 0.36; }
double bubbles(double u, double v) {
  return std::fabs(std::hypot(fraction(u) - 0.5, fraction(v) - 0.5) - 0.31) - 0.1;
}
double crosshatch(double u, double v) {
  return 0.1 - std::min(zigzag((u + v) / 1.4), zigzag((u - v) / 1.4)) * 0.4;
}
double chevrons(double u, double v) { return stripe(v + zigzag(u * 0.8) * 0.6); }
double pluses(double u, double v) {
  const double x = std::fabs(fraction(u) - 0.5), y = std::fabs(fraction(v) - 0.5);
  const double across = std::max(x - 0.42, y - 0.15), down = std::max(x - 0.15, y - 0.42);
  return std::min(across, down);
}
double triangles(double u, double v) {
  const double x = std::fabs(fraction(u) - 0.5), y = fraction(v) - 0.5;  // y grows downwards
  return std::max((x * 2 - (y + 0.42)) * 0.5, y - 0.4);
}
double bricks(double u, double v) {
  const double row = std::floor(v);
  const double shifted = u * 0.6 + (std::fmod(std::fabs(row), 2.0) < 1 ? 0.5 : 0.0);
  const double joint =
      std::min((0.5 - std::fabs(fraction(shifted) - 0.5)) / 0.6, 0.5 - std::fabs(fraction(v) - 0.5));
  return 0.15 - joint;
}
double stars(double u, double v) {
  const double x = fraction(u) - 0.5, y = fraction(v) - 0.5;
  const double angle = std::atan2(x, -y);  // from straight up, so a mirror image is the same star
  return std::hypot(x, y) - (0.32 + 0.15 * std::cos(5 * angle));
}
double arcs(double u, double v) {
  const double y = fraction(v);
  const double x = fraction(u) - 0.5;
  return std::fabs(std::hypot(x, y - 1) - 0.45) * 1.2 - 0.17 + std::max(0.0, y - 0.97);
}

struct Motif {
  const char* name;
  Shape shape;
};

// The first ones are the easiest to distinguish: small data sets use those.
constexpr std::array<Motif, 12> kMotifs{{{"bars", bars},
                                         {"pillars", pillars},
                                         {"checkers", checkers},
                                         {"dots", dots},
                                         {"crosshatch", crosshatch},
                                         {"chevrons", chevrons},
                                         {"triangles", triangles},
                                         {"bricks", bricks},
                                         {"bubbles", bubbles},
                                         {"pluses", pluses},
                                         {"stars", stars},
                                         {"arcs", arcs}}};

// Outlines of patches, in a square from -1 to 1; negative inside.
double in_disc(double x, double y) { return std::hypot(x, y) - 1; }
double in_square(double x, double y) { return std::max(std::fabs(x), std::fabs(y)) - 0.9; }
double in_diamond(double x, double y) { return (std::fabs(x) + std::fabs(y)) * 0.75 - 0.9; }
double in_triangle(double x, double y) { return std::max((std::fabs(x) * 2 - y - 1) * 0.5, y - 0.9); }
double in_plus(double x, double y) {
  const double a = std::fabs(x), b = std::fabs(y);
  return std::min(std::max(a - 1, b - 0.4), std::max(a - 0.4, b - 1));
}
double in_ring(double x, double y) { return std::fabs(std::hypot(x, y) - 0.75) - 0.28; }
double in_star(double x, double y) {
  return std::hypot(x, y) - (0.72 + 0.3 * std::cos(5 * std::atan2(x, -y)));
}
double in_dome(double x, double y) { return std::max(std::hypot(x, y - 0.5) - 1.1, y - 0.5); }

struct Patch {
  const char* name;
  Shape shape;
};

constexpr std::array<Patch, 8> kPatches{{{"discs", in_disc},
                                         {"squares", in_square},
                                         {"diamonds", in_diamond},
                                         {"wedges", in_triangle},
                                         {"crosses", in_plus},
                                         {"rings", in_ring},
                                         {"suns", in_star},
                                         {"domes", in_dome}}};

// A motif placed in a picture: pixels to periods by a slant, a size and an offset.
class Placement {
 public:
  Placement(Shape shape, double period, Random& random) : shape_(shape), period_(period) {
    const double slant = random.uniform(-0.2, 0.2);  // radians; well short of turning bars into pillars
    cos_ = std::cos(slant) / period;
    sin_ = std::sin(slant) / period;
    u_ = random.uniform(0, 16);
    v_ = random.uniform(0, 16);
  }

  // 1 inside, 0 outside, blended over about a pixel at the edge.
  double cover(double x, double y) const {
    const double distance = shape_(x * cos_ + y * sin_ + u_, y * cos_ - x * sin_ + v_) * period_;
    return std::clamp(0.5 - distance, 0.0, 1.0);
  }

 private:
  Shape shape_;
  double period_;  // in pixels
  double cos_, sin_, u_, v_;
};

struct Spot {
  double x, y, radius;
};

// A few positions far apart, so that patches do not overlap and the ground between them is visible.
std::vector<Spot> scatter(int count, double radius, int width, int height, Random& random) {
  std::vector<Spot> spots;
  for (int attempt = 0; attempt < 200 && static_cast<int>(spots.size()) < count; ++attempt) {
    const Spot spot{random.uniform(0.1, 0.9) * width, random.uniform(0.1, 0.9) * height,
                    radius * random.uniform(0.85, 1.15)};
    const bool apart = std::all_of(spots.begin(), spots.end(), [&](const Spot& other) {
      return std::hypot(spot.x - other.x, spot.y - other.y) > (spot.radius + other.radius) * 0.9;
    });
    if (apart) spots.push_back(spot);
  }
  return spots;
}

// A smooth random field: a sum of a few slow waves, about -1 to 1.
class Lighting {
 public:
  Lighting(int width, int height, Random& random) {
    for (Wave& wave : waves_) {
      const double angle = random.uniform(0, 2 * std::numbers::pi);
      const double cycles = random.uniform(0.3, 1.2) * 2 * std::numbers::pi / std::min(width, height);
      wave = {std::cos(angle) * cycles, std::sin(angle) * cycles, random.uniform(0, 2 * std::numbers::pi)};
    }
  }
  double at(double x, double y) const {
    double sum = 0;
    for (const Wave& wave : waves_) sum += std::sin(wave.x * x + wave.y * y + wave.phase);
    return sum / 2;
  }

 private:
  struct Wave {
    double x, y, phase;
  };
  std::array<Wave, 3> waves_{};
};

using Colour = std::array<double, 3>;

Colour random_colour(Random& random) {
  return {random.uniform(-1, 1), random.uniform(-1, 1), random.uniform(-1, 1)};
}

// Two colours that differ enough in lightness, not only in hue.
std::pair<Colour, Colour> two_colours(Random& random) {
  for (;;) {
    const Colour a = random_colour(random), b = random_colour(random);
    const double light = 0.3 * (a[0] - b[0]) + 0.6 * (a[1] - b[1]) + 0.1 * (a[2] - b[2]);
    if (std::fabs(light) > 0.6) return {a, b};
  }
}

struct Canvas {
  int width, height;
  std::vector<double> values;  // [height, width, 3]

  double* at(int x, int y) {
    return values.data() +
           (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x)) * 3;
  }
};

// Ellipses and lines of any colour over the picture, alike for all classes.
void add_clutter(Canvas& canvas, Random& random) {
  const int count = 1 + static_cast<int>(random.below(4));
  const double size = std::min(canvas.width, canvas.height);
  for (int i = 0; i < count; ++i) {
    const double cx = random.uniform(0, canvas.width), cy = random.uniform(0, canvas.height);
    const double angle = random.uniform(0, std::numbers::pi), cosine = std::cos(angle),
                 sine = std::sin(angle);
    const bool line = random.uniform() < 0.5;
    const double a = size * (line ? random.uniform(0.3, 0.8) : random.uniform(0.04, 0.13));
    const double b = size * (line ? random.uniform(0.01, 0.025) : random.uniform(0.04, 0.13));
    const Colour colour = random_colour(random);
    for (int y = 0; y < canvas.height; ++y)
      for (int x = 0; x < canvas.width; ++x) {
        const double u = ((x - cx) * cosine + (y - cy) * sine) / a,
                     v = ((y - cy) * cosine - (x - cx) * sine) / b;
        if (u * u + v * v > 1) continue;
        for (int c = 0; c < 3; ++c) canvas.at(x, y)[c] = colour[static_cast<std::size_t>(c)];
      }
  }
}

// Gives each channel a mean and a spread from a distribution that no class has a part in, adds noise, rounds.
std::vector<std::uint8_t> develop(const Canvas& canvas, Random& random) {
  const std::size_t pixels = canvas.values.size() / 3;
  std::vector<std::uint8_t> out(canvas.values.size());
  const double noise = random.uniform(3, 10);
  std::array<double, 3> gain{}, offset{};
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < canvas.values.size(); i += 3) {
      sum += canvas.values[i];
      squares += canvas.values[i] * canvas.values[i];
    }
    const double mean = sum / static_cast<double>(pixels);
    const double spread = std::sqrt(std::max(squares / static_cast<double>(pixels) - mean * mean, 1e-4));
    gain[c] = random.uniform(25, 55) / std::max(spread, 0.05);
    offset[c] = random.uniform(85, 170) - mean * gain[c];
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t c = i % 3;
    const double value = canvas.values[i] * gain[c] + offset[c] + noise * random.normal();
    out[i] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(value), 0.0, 255.0));
  }
  return out;
}

}  // namespace

int max_synth_classes() {
  const int motifs = static_cast<int>(kMotifs.size()), patches = static_cast<int>(kPatches.size());
  return motifs + motifs * (motifs - 1) * patches;
}

std::vector<std::pair<std::string, SynthArtist::Recipe>> SynthArtist::recipes(int count) {
  if (count < 1 || count > max_synth_classes())
    throw UsageError("--classes {} is not between 1 and {}", count, max_synth_classes());
  std::vector<std::pair<std::string, Recipe>> list;
  const int motifs = static_cast<int>(kMotifs.size());
  for (int ground = 0; ground < motifs; ++ground)
    list.emplace_back(kMotifs[static_cast<std::size_t>(ground)].name, Recipe{ground, -1, 0});
  for (int patch = 0; patch < static_cast<int>(kPatches.size()); ++patch)
    for (int turn = 1; turn < motifs; ++turn)  // so that every motif is used early, as ground and as figure
      for (int ground = 0; ground < motifs; ++ground) {
        const int figure = (ground + turn) % motifs;
        list.emplace_back(fmt::format("{}-{}-{}", kMotifs[static_cast<std::size_t>(ground)].name,
                                      kMotifs[static_cast<std::size_t>(figure)].name,
                                      kPatches[static_cast<std::size_t>(patch)].name),
                          Recipe{ground, figure, patch});
      }
  list.resize(static_cast<std::size_t>(count));
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return list;
}

std::vector<std::string> synth_class_names(int count) { return SynthArtist(count).names(); }

SynthArtist::SynthArtist(int classes) {
  for (auto& [name, recipe] : recipes(classes)) {
    names_.push_back(std::move(name));
    recipes_.push_back(recipe);
  }
}

std::vector<std::uint8_t> SynthArtist::draw(int label, int width, int height, Random random) const {
  const Recipe& recipe = recipes_.at(static_cast<std::size_t>(label));
  const double size = std::min(width, height);
  const Placement ground(kMotifs[static_cast<std::size_t>(recipe.ground)].shape,
                         size * random.uniform(0.16, 0.26), random);
  const Placement figure(kMotifs[static_cast<std::size_t>(std::max(recipe.figure, 0))].shape,
                         size * random.uniform(0.12, 0.17), random);
  const double radius = size * random.uniform(0.24, 0.3);
  const std::vector<Spot> spots = scatter(4, radius, width, height, random);
  const Shape outline = kPatches[static_cast<std::size_t>(recipe.patch)].shape;
  const auto [ink, paper] = two_colours(random);
  const auto [figure_ink, figure_paper] = two_colours(random);
  const Lighting lighting(width, height, random);

  Canvas canvas{width, height,
                std::vector<double>(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3)};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      double cover = ground.cover(x, y);
      bool on_patch = false;
      if (recipe.figure >= 0)
        for (const Spot& spot : spots)
          on_patch = on_patch || outline((x - spot.x) / spot.radius, (y - spot.y) / spot.radius) < 0;
      if (on_patch) cover = figure.cover(x, y);
      const Colour& inside = on_patch ? figure_ink : ink;
      const Colour& outside = on_patch ? figure_paper : paper;
      const double light = 0.35 * lighting.at(x, y);
      for (std::size_t c = 0; c < 3; ++c)
        canvas.at(x, y)[c] = outside[c] + cover * (inside[c] - outside[c]) + light;
    }
  add_clutter(canvas, random);
  return develop(canvas, random);
}

}  // namespace redline::data
