#include "bench/chart.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/text.h"
#include "data/images/encode.h"

namespace redline::bench {
namespace {

constexpr int kWidth = 800, kHeight = 480;
constexpr double kLeft = 80, kRight = 30, kTop = 50, kBottom = 60;
constexpr double kLetter = 9;  // from one to the next

struct Color {
  std::uint8_t red, green, blue;
};
constexpr Color kInk = {40, 40, 40}, kGrid = {220, 220, 220};
// Colours that colour-blind people can distinguish.
constexpr Color kColors[] = {{0, 90, 170}, {215, 95, 0}, {0, 140, 100}, {190, 90, 150}, {90, 90, 90}};

struct Point {
  double x, y;
};

enum class Align { left, middle, right };

// What a chart is drawn on.
class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void line(Point from, Point to, Color color, double width) = 0;
  virtual void dot(Point at, Color color) = 0;
  virtual void text(Point at, const std::string& text, Align align, Color color) = 0;
};

std::string hex(Color color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

class SvgCanvas final : public Canvas {
 public:
  void line(Point from, Point to, Color color, double width) override {
    text_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
        from.x, from.y, to.x, to.y, hex(color), width);
  }
  void dot(Point at, Color color) override {
    text_ +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", at.x, at.y, hex(color));
  }
  void text(Point at, const std::string& text, Align align, Color color) override {
    constexpr const char* kAnchors[] = {"start", "middle", "end"};
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", at.x,
                         at.y, kAnchors[static_cast<int>(align)], hex(color), escaped(text));
  }
  std::string whole() const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
               "{1}\" "
               "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" "
               "fill=\"white\"/>\n<desc>{2}</desc>\n",
               kWidth, kHeight, program_text()) +
           text_ + "</svg>\n";
  }

 private:
  std::string text_;
};

// Letters as strokes between points of a grid 5 wide and 7 high, each point two digits: x, and y from the
// top.
const std::map<char, std::string_view> kStrokes = {{'0', "103041453616050110"},
                                                   {'1', "112026 1636"},
                                                   {'2', "01103041420646"},
                                                   {'3', "01103041423313 334445361605"},
                                                   {'4', "36300444"},
                                                   {'5', "4000033344453606"},
                                                   {'6', "30100105163645443303"},
                                                   {'7', "004026"},
                                                   {'8', "13020110304142331304051636454433"},
                                                   {'9', "43130201103041453616"},
                                                   {'A', "0602204246 0444"},
                                                   {'B', "00063645443303 3342413000"},
                                                   {'C', "4130100105163645"},
                                                   {'D', "00062644422000"},
                                                   {'E', "40000646 0333"},
                                                   {'F', "400006 0333"},
                                                   {'G', "41301001051636454323"},
                                                   {'H', "0006 4046 0343"},
                                                   {'I', "1030 2026 1636"},
                                                   {'J', "4045361605"},
                                                   {'K', "0006 400346"},
                                                   {'L', "000646"},
                                                   {'M', "0600224046"},
                                                   {'N', "06004640"},
                                                   {'O', "103041453616050110"},
                                                   {'P', "06003041423303"},
                                                   {'Q', "103041453616050110 2446"},
                                                   {'R', "06003041423303 1346"},
                                                   {'S', "413010010213334445361605"},
                                                   {'T', "0040 2026"},
                                                   {'U', "000516364540"},
                                                   {'V', "002640"},
                                                   {'W', "0016233640"},
                                                   {'X', "0046 4006"},
                                                   {'Y', "002340 2326"},
                                                   {'Z', "00400646"},
                                                   {'.', "2526"},
                                                   {',', "2516"},
                                                   {'-', "1333"},
                                                   {'+', "2125 0343"},
                                                   {'/', "4006"},
                                                   {':', "2122 2425"},
                                                   {'%', "4006 0001 4546"},
                                                   {'_', "0646"},
                                                   {'(', "30212536"},
                                                   {')', "10212516"}};

class RasterCanvas final : public Canvas {
 public:
  RasterCanvas() : pixels_(static_cast<std::size_t>(kWidth) * kHeight * 3, 255) {}

  void line(Point from, Point to, Color color, double width) override {
    const double length = std::hypot(to.x - from.x, to.y - from.y);
    const int steps = std::max(1, static_cast<int>(std::ceil(2 * length)));
    for (int i = 0; i <= steps; ++i) {
      const double part = static_cast<double>(i) / steps;
      disc({from.x + part * (to.x - from.x), from.y + part * (to.y - from.y)}, width / 2, color);
    }
  }
  void dot(Point at, Color color) override { disc(at, 3.5, color); }
  void text(Point at, const std::string& text, Align align, Color color) override {
    constexpr double kScale = kLetter / 6;
    const double width = kLetter * static_cast<double>(text.size());
    Point pen = {at.x - (align == Align::left     ? 0
                         : align == Align::middle ? width / 2
                                                  : width),
                 at.y - 6 * kScale};
    for (const char c : text) {
      const auto strokes = kStrokes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
      if (strokes != kStrokes.end()) glyph(strokes->second, pen, kScale, color);
      pen.x += kLetter;
    }
  }
  const std::vector<std::uint8_t>& pixels() const { return pixels_; }

 private:
  void glyph(std::string_view strokes, Point pen, double scale, Color color) {
    const auto at = [&](std::size_t i) {
      return Point{pen.x + scale * (strokes[i] - '0'), pen.y + scale * (strokes[i + 1] - '0')};
    };
    for (std::size_t i = 0; i + 3 < strokes.size();) {
      if (strokes[i + 2] == ' ') {
        i += 3;
        continue;
      }
      line(at(i), at(i + 2), color, 1.2);
      i += 2;
    }
  }
  void disc(Point at, double radius, Color color) {
    const double reach = std::max(radius, 0.5);
    for (int y = static_cast<int>(at.y - reach); y <= static_cast<int>(at.y + reach); ++y) {
      for (int x = static_cast<int>(at.x - reach); x <= static_cast<int>(at.x + reach); ++x) {
        if (x < 0 || y < 0 || x >= kWidth || y >= kHeight) continue;
        if (std::hypot(x + 0.5 - at.x, y + 0.5 - at.y) > reach + 0.25) continue;
        std::uint8_t* pixel =
            &pixels_[(static_cast<std::size_t>(y) * kWidth + static_cast<std::size_t>(x)) * 3];
        pixel[0] = color.red, pixel[1] = color.green, pixel[2] = color.blue;
      }
    }
  }

  std::vector<std::uint8_t> pixels_;
};

// 1, 2 or 5 times a power of ten, so that about five of them reach `most`.
double tick_of(double most) {
  const double raw = most / 5, power = std::pow(10, std::floor(std::log10(raw)));
  const double lead = raw / power;
  return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

struct Range {
  double x_low = 1, x_high = 1, y_high = 1;
};

Range range_of(const Chart& chart) {
  Range range;
  bool first = true;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      range.x_low = first ? x : std::min(range.x_low, x);
      range.x_high = first ? x : std::max(range.x_high, x);
      range.y_high = first ? y : std::max(range.y_high, y);
      first = false;
    }
  }
  if (!(range.y_high > 0)) range.y_high = 1;
  return range;
}

std::string x_text(const Chart& chart, double x) {
  if (chart.bytes) return format_bytes(static_cast<std::uint64_t>(x));
  if (x > 0 && x < 0.1) return fmt::format("{:.1e}", x);
  return x < 1e4 && x == std::floor(x) ? fmt::format("{:.0f}", x) : format_count(x);
}

void draw(const Chart& chart, Canvas& canvas) {
  const Range range = range_of(chart);
  const double tick = tick_of(range.y_high), top = std::ceil(range.y_high / tick) * tick;
  const double low = std::log(std::max(range.x_low, 1e-9)), high = std::log(std::max(range.x_high, 1e-9));
  const auto place = [&](double x, double y) {
    const double part = high > low ? (std::log(std::max(x, 1e-9)) - low) / (high - low) : 0.5;
    return Point{kLeft + part * (kWidth - kLeft - kRight),
                 kHeight - kBottom - y / top * (kHeight - kTop - kBottom)};
  };
  for (double y = 0; y <= top * 1.0001; y += tick) {
    const double level = place(range.x_low, y).y;
    canvas.line({kLeft, level}, {kWidth - kRight, level}, kGrid, 1);
    canvas.text({kLeft - 8, level + 5}, format_count(y), Align::right, kInk);
  }
  if (chart.mark > 0) canvas.line(place(chart.mark, 0), place(chart.mark, top), kInk, 1);
  double last_end = -100;
  for (const Series& series : chart.series) {
    if (&series != &chart.series.front()) break;
    for (const auto& [x, y] : series.points) {
      const Point at = place(x, 0);
      const std::string label = x_text(chart, x);
      const double half = kLetter * static_cast<double>(label.size()) / 2;
      if (at.x - half < last_end + kLetter) continue;  // they would run into each other
      last_end = at.x + half;
      canvas.text({at.x, kHeight - kBottom + 20}, label, Align::middle, kInk);
    }
  }
  canvas.text({kWidth / 2.0, 24}, chart.title, Align::middle, kInk);
  canvas.text({kWidth / 2.0, kHeight - 14}, chart.x_label, Align::middle, kInk);
  canvas.text({kLeft, kTop - 10}, chart.y_label, Align::middle, kInk);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Color color = kColors[i % std::size(kColors)];
    const auto& points = chart.series[i].points;
    for (std::size_t j = 0; j < points.size(); ++j) {
      const Point at = place(points[j].first, points[j].second);
      if (j > 0) canvas.line(place(points[j - 1].first, points[j - 1].second), at, color, 2);
      canvas.dot(at, color);
    }
    canvas.text({kWidth - kRight, kTop + 18.0 * static_cast<double>(i)}, chart.series[i].name, Align::right,
                color);
  }
}

void draw(const BarChart& chart, Canvas& canvas) {
  constexpr double kNames = 250;  // their column
  double most = chart.mark;
  for (const auto& [name, value] : chart.bars) most = std::max(most, value);
  if (!(most > 0)) most = 1;
  const double tick = tick_of(most), end = std::ceil(most / tick) * tick;
  const auto place = [&](double value) { return kNames + value / end * (kWidth - kRight - kNames); };
  for (double value = 0; value <= end * 1.0001; value += tick) {
    canvas.line({place(value), kTop}, {place(value), kHeight - kBottom}, kGrid, 1);
    canvas.text({place(value), kHeight - kBottom + 20}, format_count(value), Align::middle, kInk);
  }
  const double pitch =
      (kHeight - kTop - kBottom) / static_cast<double>(std::max<std::size_t>(1, chart.bars.size()));
  double y = kTop + pitch / 2;
  for (const auto& [name, value] : chart.bars) {
    canvas.text({kNames - 8, y + 5}, name, Align::right, kInk);
    canvas.line({place(0), y}, {place(value), y}, kColors[0], std::min(12.0, 0.7 * pitch));
    y += pitch;
  }
  if (chart.mark > 0)
    canvas.line({place(chart.mark), kTop}, {place(chart.mark), kHeight - kBottom}, kColors[1], 2);
  canvas.text({kWidth / 2.0, 24}, chart.title, Align::middle, kInk);
  canvas.text({(kNames + kWidth - kRight) / 2, kHeight - 14}, chart.unit, Align::middle, kInk);
}

template <typename AnyChart>
std::string svg_of(const AnyChart& chart) {
  SvgCanvas canvas;
  draw(chart, canvas);
  return canvas.whole();
}

template <typename AnyChart>
std::vector<std::uint8_t> png_of(const AnyChart& chart) {
  RasterCanvas canvas;
  draw(chart, canvas);
  return data::encode_png(canvas.pixels().data(), kWidth, kHeight, program_text());
}

template <typename AnyChart>
void write_any(const AnyChart& chart, const std::string& path) {
  check_chart_name(path);
  if (path.ends_with(".svg")) return write_file_atomically(path, svg_of(chart));
  const std::vector<std::uint8_t> png = png_of(chart);
  write_file_atomically(path, {reinterpret_cast<const char*>(png.data()), png.size()});
}

}  // namespace

std::string text_bar(double value, double most, int columns) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int>(std::lround(8 * columns * value / most));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  return bar + kEighths[eighths % 8];
}

std::string text_chart(const Chart& chart, int width) {
  const double most = range_of(chart).y_high;
  const int bar = std::max(10, width - 24), digits = most < 10 ? 3 : 1;
  std::string text;
  for (const Series& series : chart.series) {
    text += fmt::format("{}: {} by {}\n", series.name, chart.y_label, chart.x_label);
    for (const auto& [x, y] : series.points) {
      text += fmt::format("{:>8} {} {:.{}f}\n", x_text(chart, x), text_bar(y, most, bar), y, digits);
    }
  }
  return text;
}

std::string svg_chart(const Chart& chart) { return svg_of(chart); }
std::vector<std::uint8_t> png_chart(const Chart& chart) { return png_of(chart); }

void check_chart_name(const std::string& path) {
  if (!path.ends_with(".svg") && !path.ends_with(".png"))
    throw UsageError("--plot {}: name a file that ends in .svg or .png", path);
}

void write_chart(const Chart& chart, const std::string& path) { write_any(chart, path); }
void write_chart(const BarChart& chart, const std::string& path) { write_any(chart, path); }

}  // namespace redline::bench
