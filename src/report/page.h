// The page: one HTML file with everything in it, which opens from disk with no network.
#pragma once

#include <string>
#include <string_view>

namespace redline::report {

enum class PageKind { saved, live /* asks its server for news */ };

// `document` is JSON (document.h, variability.h); its text is only ever data: it cannot end the place it
// stands in, and the page's policy runs no script but its own. Throws InternalError for a document that is
// not JSON text.
std::string page(std::string_view document, std::string_view title, PageKind kind = PageKind::saved);

}  // namespace redline::report
