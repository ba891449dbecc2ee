#include <filesystem>
#include <memory>
#include <utility>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "dataplane/cli/device_commands.h"
#include "dataplane/cli/one_shard.h"
#include "dataplane/runtime/uring/disk_file.h"

namespace sarsen {
namespace {

// A sparse file that is removed again unless it is kept.
class NewFile {
 public:
  NewFile() = default;
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }

  Result<void> create(const std::string& path, std::uint64_t bytes) {
    const int descriptor =
        open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) return fail(error_from_errno(errno, "create " + path));
    path_ = path;
    const int resized = ftruncate(descriptor, static_cast<off_t>(bytes));
    const int errno_value = errno;
    close(descriptor);
    if (resized != 0) {
      return fail(error_from_errno(errno_value, fmt::format("make {} {} bytes long", path, bytes)));
    }
    return {};
  }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

struct FormatRun {
  std::shared_ptr<DiskFile> file;
  FormatOptions options;
  Result<Superblock> outcome = fail(make_error(RuntimeError::cancelled));
};

Task<void> format_device(ShardContext context, FormatRun* run) {
  auto disk = open_disk(run->file, context.reactor);
  auto blocking = open_blocking_disk(run->file);
  if (!disk || !blocking) {
    run->outcome = fail(disk ? blocking.error() : disk.error());
    co_return;
  }
  run->outcome = co_await Store::format(context.env, **disk, **blocking, run->options);
}

Result<DeviceContents> contents_of(const std::shared_ptr<DiskFile>& file) {
  auto disk = open_blocking_disk(file);
  if (!disk) return fail(disk.error());
  const auto descriptor = file->reopen();
  if (!descriptor) return fail(descriptor.error());
  auto contents = look_at_contents(*descriptor, **disk);
  close(*descriptor);
  return contents;
}

// A name that is missing in /dev is a typing error, and a file there would fill the memory.
std::optional<std::string> refuse_creation(const FormatOptionsOfCommand& options) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::symlink_status(options.path, ignored).type() != fs::file_type::not_found) {
    return fmt::format(
        "{} exists already; --create never overwrites anything. Give a new name, or leave "
        "--create out",
        options.path);
  }
  const std::string parent =
      fs::weakly_canonical(fs::absolute(options.path), ignored).parent_path().string() + "/";
  if (parent.starts_with("/dev/") && !parent.starts_with("/dev/shm/")) {
    return fmt::format(
        "{} does not exist, and --create does not make files in /dev; look up the device with "
        "lsblk",
        options.path);
  }
  return std::nullopt;
}

Json geometry_report(const StoreGeometry& geometry) {
  return {{"size", describe_bytes(geometry.device_bytes)},
          {"journal", describe_bytes(geometry.segment_count * geometry.segment_bytes)},
          {"journal_segments", geometry.segment_count},
          {"lanes", geometry.lane_count},
          {"data_space", describe_bytes(geometry.chunk_count * geometry.chunk_bytes)},
          {"chunk", describe_bytes(geometry.chunk_bytes)}};
}

ExitCode format_claimed(const FormatOptionsOfCommand& options, const DeviceUse& use,
                        std::shared_ptr<DiskFile> file) {
  // Under the claim: nobody else can change the device between this look and the format.
  auto contents = contents_of(file);
  if (!contents) {
    return print_failure(ExitCode::could_not, contents.error().message() + ". Nothing was changed",
                         options.format);
  }
  if (auto refused = refuse_format(options.request, use, *contents)) {
    return print_failure(ExitCode::problems, *refused, options.format);
  }
  auto geometry = choose_geometry(file->info().size_bytes, options.store.sizes);
  if (!geometry) {
    return print_failure(
        ExitCode::could_not,
        fmt::format("{}: {}. Nothing was changed", options.path, geometry.error().message()),
        options.format);
  }
  Json report{{"path", options.path},
              {"destroys", describe_loss(*contents)},
              {"geometry", geometry_report(*geometry)}};
  if (options.dry_run) {
    report["formatted"] = false;
    report["next"] = "the same without --dry-run formats the device";
    print_report(report, options.format);
    return ExitCode::ok;
  }
  FormatRun run{.file = std::move(file), .options = options.store};
  if (options.before_writing) {
    if (auto ready = options.before_writing(run.options); !ready) {
      return print_failure(ExitCode::could_not, ready.error().message() + ". Nothing was changed",
                           options.format);
    }
    report["osd"] = run.options.osd_id;
    report["cluster"] = to_string(run.options.cluster);
  }
  const auto ran =
      run_on_one_shard([&run](ShardContext context) { return format_device(context, &run); });
  if (!ran || !run.outcome) {
    const Error& error = ran ? run.outcome.error() : ran.error();
    return print_failure(
        ExitCode::could_not,
        fmt::format("{}: {}. {}", options.path, error.message(),
                    ran ? "The device holds no store now; format it again when the cause is gone"
                        : "Nothing was changed"),
        options.format);
  }
  report["formatted"] = true;
  report["device_id"] = to_string(run.outcome->device);
  report["next"] =
      (options.before_writing ? "sarsen-osd --device " : "sarsen device inspect ") + options.path;
  print_report(report, options.format);
  return ExitCode::ok;
}

}  // namespace

ExitCode run_device_format(const FormatOptionsOfCommand& options) {
  NewFile created;
  if (options.create) {
    if (auto refused = refuse_creation(options)) {
      return print_failure(ExitCode::problems, *refused, options.format);
    }
    // Before the file exists: sizes that cannot work leave nothing behind.
    auto geometry = choose_geometry(options.create_bytes, options.store.sizes);
    if (!geometry) {
      return print_failure(
          ExitCode::could_not,
          fmt::format("{}: {}. Nothing was created", options.path, geometry.error().message()),
          options.format);
    }
    if (options.dry_run) {
      print_report(Json{{"path", options.path},
                        {"destroys", "nothing: the file would be created"},
                        {"geometry", geometry_report(*geometry)},
                        {"formatted", false}},
                   options.format);
      return ExitCode::ok;
    }
    if (auto made = created.create(options.path, options.create_bytes); !made) {
      return print_failure(ExitCode::could_not, made.error().message(), options.format);
    }
  }
  const auto use = look_at_use(options.path);
  if (!use) {
    const bool absent = is(use.error(), RuntimeError::not_found);
    return print_failure(
        ExitCode::could_not,
        use.error().message() +
            (absent ? ". For a test, --create --size BYTES makes a file of that name" : ""),
        options.format);
  }
  if (auto refused = refuse_used(*use)) {
    return print_failure(ExitCode::problems, *refused, options.format);
  }
  auto file = DiskFile::open(options.path, OpenMode::exclusive);
  if (!file) {
    const bool claimed = is(file.error(), RuntimeError::overloaded);
    return print_failure(claimed ? ExitCode::problems : ExitCode::could_not,
                         file.error().message() + ". Nothing was changed", options.format);
  }
  const ExitCode code = format_claimed(options, *use, *std::move(file));
  if (code == ExitCode::ok) created.keep();
  return code;
}

}  // namespace sarsen
