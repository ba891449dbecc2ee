#include "dataplane/store/metadata/metadata_file_system.h"

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "dataplane/store/metadata/metadata_error.h"

namespace sarsen {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

template <typename T>
IOStatus status_of(const Result<T>& result) {
  return result ? IOStatus::OK() : to_io_status(result.error());
}

std::span<const std::byte> bytes_of(const Slice& slice) {
  return std::as_bytes(std::span(slice.data(), slice.size()));
}
std::span<std::byte> bytes_of(char* data, std::size_t size) {
  return std::as_writable_bytes(std::span(data, size));
}

// One slash between names, none at either end.
std::string normal_name(const std::string& path) {
  std::string name;
  for (const char c : path) {
    if (c == '/' && (name.empty() || name.back() == '/')) continue;
    name.push_back(c);
  }
  if (!name.empty() && name.back() == '/') name.pop_back();
  return name;
}

std::string_view base_name(std::string_view name) {
  const auto slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}
bool is_log(const std::string& name) {
  return name.ends_with(".log");
}
bool is_table(const std::string& name) {
  return name.ends_with(".sst");
}
bool is_options(const std::string& name) {
  return base_name(name).starts_with("OPTIONS");
}

// ------------------------------------------------------------------------------------- handles

class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(std::unique_ptr<FileReader> reader) : reader_(std::move(reader)) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    const auto read = reader_->read(offset_, bytes_of(scratch, n));
    *result = Slice(scratch, read ? *read : 0);
    offset_ += result->size();
    return status_of(read);
  }
  IOStatus Skip(uint64_t n) override {
    offset_ = std::min(offset_ + n, reader_->length_bytes());
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<FileReader> reader_;
  std::uint64_t offset_ = 0;
};

class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  explicit RandomAccessFile(std::unique_ptr<FileReader> reader) : reader_(std::move(reader)) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    const auto read = reader_->read(offset, bytes_of(scratch, n));
    *result = Slice(scratch, read ? *read : 0);
    return status_of(read);
  }
  // Nothing is read ahead: one bad block must not hide the good ones before it.
  IOStatus Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<FileReader> reader_;
};

class WritableFile final : public rocksdb::FSWritableFile {
 public:
  explicit WritableFile(std::unique_ptr<FileWriter> writer) : writer_(std::move(writer)) {}

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return status_of(writer_->append(bytes_of(data)));
  }
  using rocksdb::FSWritableFile::Append;
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return status_of(writer_->sync()); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    return writer_->length_bytes();
  }
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}

 private:
  std::unique_ptr<FileWriter> writer_;
};

// RocksDB makes a log at each opening even when nothing may be written to it.
class EmptyLog final : public rocksdb::FSWritableFile {
 public:
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    if (data.empty()) return IOStatus::OK();
    return IOStatus::NotSupported("a write without disableWAL: the store's journal is the log");
  }
  using rocksdb::FSWritableFile::Append;
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
};

class Directory final : public rocksdb::FSDirectory {
 public:
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
};

class NameLock final : public rocksdb::FileLock {
 public:
  explicit NameLock(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

// --------------------------------------------------------------------------------- file system

class MetadataFileSystem final : public rocksdb::FileSystem {
 public:
  explicit MetadataFileSystem(MetadataFiles& files) : files_(files) {}
  const char* Name() const override { return "SarsenMetadataFileSystem"; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override {
    return open_for_reading<SequentialFile>(path, result);
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    return open_for_reading<RandomAccessFile>(path, result);
  }
  IOStatus NewWritableFile(const std::string& path, const FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override {
    const std::string name = normal_name(path);
    if (is_options(name)) return IOStatus::NotSupported("options are code");
    if (is_log(name)) {
      *result = std::make_unique<EmptyLog>();
    } else {
      *result = std::make_unique<WritableFile>(files_.create(name, !is_table(name)));
    }
    return IOStatus::OK();
  }
  IOStatus NewDirectory(const std::string&, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override {
    *result = std::make_unique<Directory>();
    return IOStatus::OK();
  }

  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    return files_.length(normal_name(path)) ? IOStatus::OK() : IOStatus::NotFound(path);
  }
  IOStatus GetChildren(const std::string& directory, const IOOptions&,
                       std::vector<std::string>* result, IODebugContext*) override {
    result->clear();
    const std::string name = normal_name(directory);
    for (std::string& child : files_.list(name.empty() ? name : name + "/")) {
      if (child.find('/') == std::string::npos) result->push_back(std::move(child));
    }
    return IOStatus::OK();
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    const auto length = files_.length(normal_name(path));
    *size = length ? *length : 0;
    return status_of(length);
  }
  IOStatus GetFileModificationTime(const std::string& path, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    *time = 0;
    return status_of(files_.length(normal_name(path)));
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    const std::string name = normal_name(path);
    // What stays is removed by the next opening, which drops every manifest that is not in use.
    if (is_log(name) || is_current_manifest(name)) return IOStatus::OK();
    return status_of(files_.remove(name));
  }
  IOStatus RenameFile(const std::string& before, const std::string& after, const IOOptions&,
                      IODebugContext*) override {
    return status_of(files_.rename(normal_name(before), normal_name(after)));
  }

  IOStatus CreateDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus CreateDirIfMissing(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus DeleteDir(const std::string&, const IOOptions&, IODebugContext*) override {
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_directory,
                       IODebugContext*) override {
    *is_directory = !files_.length(normal_name(path)).has_value();
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* result,
                           IODebugContext*) override {
    *result = "/" + normal_name(path);
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string*, IODebugContext*) override {
    return IOStatus::NotSupported("GetTestDirectory");
  }
  IOStatus NewLogger(const std::string&, const IOOptions&, std::shared_ptr<rocksdb::Logger>*,
                     IODebugContext*) override {
    return IOStatus::NotSupported("NewLogger");
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    const std::lock_guard guard(mutex_);
    *lock = nullptr;
    const std::string name = normal_name(path);
    if (!locks_.insert(name).second) return IOStatus::IOError("locked: " + name);
    *lock = new NameLock(name);
    return IOStatus::OK();
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    const std::lock_guard guard(mutex_);
    const std::unique_ptr<NameLock> owned(static_cast<NameLock*>(lock));
    locks_.erase(owned->name());
    return IOStatus::OK();
  }

 private:
  // I-META-6. Without a CURRENT that can be read, any manifest may be the one.
  bool is_current_manifest(const std::string& name) {
    const std::string_view base = base_name(name);
    if (!base.starts_with("MANIFEST-")) return false;
    const std::string current = name.substr(0, name.size() - base.size()) + "CURRENT";
    if (!files_.length(current)) return false;
    const auto reader = files_.read(current);
    if (!reader) return true;
    std::string text((*reader)->length_bytes(), '\0');
    const auto size = (*reader)->read(0, bytes_of(text.data(), text.size()));
    if (!size) return true;
    text.resize(*size);
    return text == std::string(base) + "\n";
  }

  template <typename File, typename Base>
  IOStatus open_for_reading(const std::string& path, std::unique_ptr<Base>* result) {
    auto reader = files_.read(normal_name(path));
    if (!reader) {
      result->reset();
      const IOStatus status = to_io_status(reader.error());
      // RocksDB asserts that its identity either is not there or cannot be read.
      const bool identity = path.ends_with("/IDENTITY");
      return identity && status.IsCorruption() ? IOStatus::IOError(status.ToString()) : status;
    }
    *result = std::make_unique<File>(*std::move(reader));
    return IOStatus::OK();
  }

  MetadataFiles& files_;
  std::mutex mutex_;
  std::set<std::string> locks_;
};

}  // namespace

rocksdb::IOStatus to_io_status(const Error& error) {
  if (is(error, MetadataError::not_found)) return IOStatus::PathNotFound(error.message());
  if (is(error, MetadataError::corrupt)) return IOStatus::Corruption(error.message());
  if (is(error, MetadataError::no_space) || is(error, MetadataError::table_full) ||
      is(error, RuntimeError::no_space)) {
    return IOStatus::NoSpace(error.message());
  }
  return IOStatus::IOError(error.message());
}

std::shared_ptr<rocksdb::FileSystem> make_metadata_file_system(MetadataFiles& files) {
  return std::make_shared<MetadataFileSystem>(files);
}

}  // namespace sarsen
