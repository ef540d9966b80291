#include "report/page.h"

#include <random>

#include <fmt/format.h>

#include "base/build_info.h"
#include "base/error.h"
#include "report/assets.h"

namespace redline::report {
namespace {

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// Writes < as \u003c, which JSON allows, so that no text in it can be read as a tag.
std::string escape_json(std::string_view json) {
  std::string escaped;
  escaped.reserve(json.size());
  for (char c : json) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// Only scripts with this nonce run, so injected ones do not.
std::string make_nonce() {
  std::random_device source;
  std::string nonce;
  for (int i = 0; i < 4; ++i) nonce += fmt::format("{:08x}", source());
  return nonce;
}

}  // namespace

std::string page(std::string_view document, std::string_view title, PageKind kind) {
  check(document.starts_with('{') && document.ends_with('}'), "a page is made of a JSON object");
  const std::string nonce = make_nonce();
  const bool live = kind == PageKind::live;
  const std::string head = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"{}>\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{}'; "
      "style-src 'nonce-{}'; img-src data: blob:; base-uri 'none'; form-action 'none'{}\">\n"
      "<meta name=\"generator\" content=\"{}\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style nonce=\"{}\">\n",
      live ? " data-live=\"true\"" : "", nonce, nonce, live ? "; connect-src 'self'" : "",
      escape_html(program_text()), escape_html(title), nonce);
  std::string text = head;
  text += kStyle;
  text +=
      "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<header "
      "id=\"top\"></header>\n"
      "<main id=\"main\"><noscript>This page needs JavaScript to draw its charts, and JavaScript is off."
      "</noscript></main>\n<footer id=\"foot\"></footer>\n<script type=\"application/json\" id=\"document\">";
  text += escape_json(document);
  text += fmt::format("</script>\n<script nonce=\"{}\">\n", nonce);
  text += kChartJs;
  text += fmt::format("</script>\n<script nonce=\"{}\">\n", nonce);
  text += kScript;
  text += "</script>\n</body>\n</html>\n";
  return text;
}

}  // namespace redline::report
