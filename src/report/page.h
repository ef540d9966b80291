// The page: one self-contained HTML file that opens from disk without a network.
#pragma once

#include <string>
#include <string_view>

namespace redline::report {

enum class PageKind { saved, live /* polls its server */ };

// `document` is JSON (document.h, variability.h). It is embedded as data that cannot break out of its
// element, and the content security policy allows only the page's own scripts. Throws InternalError if the
// document is not JSON.
std::string page(std::string_view document, std::string_view title, PageKind kind = PageKind::saved);

}  // namespace redline::report
