#include "server/log.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "nlohmann/json.hpp"
#include "spdlog/async.h"
#include "spdlog/async_logger.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

constexpr size_t kLinesThatWait = 4096;
constexpr char kCalls[] = "call";  // the logger whose text is members of a JSON object already

std::atomic<bool> calls_as_json{false};

// The thread that writes and the lines that wait for it. The loggers outlive it: what comes after the end is
// lost.
std::shared_ptr<spdlog::details::thread_pool>& Writer() {
  static auto* const writer = new std::shared_ptr<spdlog::details::thread_pool>;
  return *writer;
}

class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto level = spdlog::level::to_string_view(message.level);
    const auto since_epoch =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch());
    const std::tm utc = spdlog::details::os::gmtime(spdlog::log_clock::to_time_t(message.time));
    fmt::format_to(std::back_inserter(out),
                   "{{\"time\":\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z\",\"level\":\"{}\",",
                   utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                   since_epoch.count() % 1000, std::string_view(level.data(), level.size()));
    const std::string_view text(message.payload.data(), message.payload.size());
    if (std::string_view(message.logger_name.data(), message.logger_name.size()) == kCalls) {
      fmt::format_to(std::back_inserter(out), "\"message\":\"call\",{}}}\n", text);
      return;
    }
    const std::string quoted =
        nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    fmt::format_to(std::back_inserter(out), "\"message\":{}}}\n", quoted);
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonLines>(); }
};

std::shared_ptr<spdlog::logger> MakeLogger(const std::string& name, const spdlog::sink_ptr& sink) {
  auto logger = std::make_shared<spdlog::async_logger>(name, sink, Writer(),
                                                       spdlog::async_overflow_policy::overrun_oldest);
  spdlog::initialize_logger(logger);
  return logger;
}

}  // namespace

void SetUpLog(const std::string& level, const std::string& format) {
  Writer() = std::make_shared<spdlog::details::thread_pool>(kLinesThatWait, 1);
  spdlog::set_error_handler([](const std::string&) {});  // there is no better place to tell it
  const spdlog::sink_ptr sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  spdlog::set_default_logger(MakeLogger("weir", sink));
  MakeLogger(kCalls, sink);
  if (format == "json")
    spdlog::set_formatter(std::make_unique<JsonLines>());
  else
    spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  calls_as_json.store(format == "json");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

void LogCall(const FinishedCall& call) {
  const std::shared_ptr<spdlog::logger> logger = spdlog::get(kCalls);
  const auto level = ReadsOnly(call.method) ? spdlog::level::debug : spdlog::level::info;
  if (logger == nullptr || !logger->should_log(level)) return;
  // Not a format: the text may have braces.
  logger->log(level, spdlog::string_view_t(calls_as_json.load() ? CallAsJson(call) : CallAsText(call)));
}

int64_t DroppedLogLines() { return static_cast<int64_t>(Writer()->overrun_counter()); }

bool FinishLog(absl::Duration patience) {
  // The thread owns what it uses: it may outlive this call.
  auto finished = std::make_shared<std::promise<void>>();
  std::future<void> future = finished->get_future();
  std::thread([finished, writer = std::move(Writer())]() mutable {
    writer.reset();  // when all is written
    finished->set_value();
  }).detach();
  return future.wait_for(absl::ToChronoNanoseconds(patience)) == std::future_status::ready;
}

}  // namespace weir
