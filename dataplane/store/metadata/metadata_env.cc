#include "dataplane/store/metadata/metadata_env.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

namespace sarsen {
namespace {

// Elapsed time runs (RocksDB measures and waits with it); the date, which goes into files, stands.
class UndatedClock final : public rocksdb::SystemClockWrapper {
 public:
  using SystemClockWrapper::SystemClockWrapper;
  const char* Name() const override { return "SarsenUndatedClock"; }
  rocksdb::Status GetCurrentTime(int64_t* unix_time) override {
    *unix_time = 1;  // 0 means "unknown" in table properties
    return rocksdb::Status::OK();
  }
  // RocksDB sleeps a second after a failed flush, before it would try again. It never tries again
  // here, and somebody waits for the answer.
  void SleepForMicroseconds(int micros) override {
    SystemClockWrapper::SleepForMicroseconds(std::min(micros, kSleepMicrosMax));
  }

 private:
  static constexpr int kSleepMicrosMax = 100;
};

class MetadataEnv final : public rocksdb::EnvWrapper {
 public:
  MetadataEnv(std::shared_ptr<rocksdb::FileSystem> file_system, std::string identity)
      : EnvWrapper(rocksdb::NewCompositeEnv(file_system)), identity_(std::move(identity)) {
    file_system_ = std::move(file_system);
    system_clock_ = std::make_shared<UndatedClock>(rocksdb::SystemClock::Default());
  }
  const char* Name() const override { return "SarsenMetadataEnv"; }
  std::string GenerateUniqueId() override { return identity_; }
  rocksdb::Status GetCurrentTime(int64_t* unix_time) override {
    return system_clock_->GetCurrentTime(unix_time);
  }
  // Goes into table properties.
  rocksdb::Status GetHostName(char* name, uint64_t size) override {
    if (size > 0) name[0] = '\0';
    return rocksdb::Status::OK();
  }

 private:
  std::string identity_;
};

class CallbackLogger final : public rocksdb::Logger {
 public:
  explicit CallbackLogger(std::function<void(std::string_view)> log)
      : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), log_(std::move(log)) {}

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    if (!log_) return;
    std::array<char, 1024> line{};
    const int size = std::vsnprintf(line.data(), line.size(), format, arguments);
    if (size <= 0) return;
    log_(std::string_view(line.data(),
                          std::min<std::size_t>(static_cast<std::size_t>(size), line.size() - 1)));
  }
  void LogHeader(const char*, va_list) override {}

 private:
  std::function<void(std::string_view)> log_;
};

}  // namespace

std::unique_ptr<rocksdb::Env> make_metadata_env(std::shared_ptr<rocksdb::FileSystem> file_system,
                                                std::string identity) {
  return std::make_unique<MetadataEnv>(std::move(file_system), std::move(identity));
}

std::shared_ptr<rocksdb::Logger> make_metadata_logger(std::function<void(std::string_view)> log) {
  return std::make_shared<CallbackLogger>(std::move(log));
}

}  // namespace sarsen
