#include "report/live.h"

#include "base/clock.h"
#include "report/document.h"
#include "report/page.h"
#include "report/prometheus.h"
#include "report/run.h"

namespace redline::report {
namespace {

constexpr double kFreshSeconds = 1;

// The document of the folders, rebuilt only when something in them changed.
class LiveDocument {
 public:
  explicit LiveDocument(const std::vector<std::filesystem::path>& folders) {
    for (const auto& folder : folders) readers_.emplace_back(folder);
    refresh();
  }

  const std::string& text() {
    refresh();
    if (text_.empty()) text_ = document(runs_, Detail::page);
    return text_;
  }
  std::string metrics() {
    refresh();
    return prometheus_text(runs_);
  }
  std::string title() const {
    return readers_.size() == 1 ? readers_.front().run().name : std::to_string(readers_.size()) + " runs";
  }

 private:
  void refresh() {
    if (!runs_.empty() && since_read_.seconds() < kFreshSeconds) return;
    bool changed = false;
    for (RunReader& reader : readers_) changed |= reader.update();
    since_read_.restart();
    if (!changed && !runs_.empty()) return;
    runs_.clear();
    for (const RunReader& reader : readers_) runs_.push_back(&reader.run());
    text_.clear();
  }

  std::vector<RunReader> readers_;
  std::vector<const Run*> runs_;
  std::string text_;  // empty: must be rebuilt
  Stopwatch since_read_;
};

}  // namespace

void serve_live(Server& server, const std::vector<std::filesystem::path>& folders,
                const std::atomic<bool>& stop) {
  LiveDocument live(folders);
  const auto answer = [&](const std::string& path) {
    Response response;
    if (path == "/") {
      response.type = "text/html; charset=utf-8";
      response.body = page(live.text(), live.title(), PageKind::live);
    } else if (path == "/data.json") {
      response.type = "application/json";
      response.body = live.text();
    } else if (path == "/metrics") {
      response.type = kPrometheusType;
      response.body = live.metrics();
    } else {
      response.status = 404;
      response.body = "404 Not Found\n";
    }
    return response;
  };
  server.serve(answer, stop);
}

}  // namespace redline::report
