#include "dataplane/blockd/node_identity.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "dataplane/keeper/descriptor.h"
#include "dataplane/runtime/error.h"

namespace sarsen::blockd {
namespace {

using keeper::Descriptor;
using wire::HolderId;

constexpr std::size_t kDigits = 16;

Result<HolderId> read_node_id(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail(error_from_errno(errno, "open " + path));
  std::array<char, kDigits + 2> text{};
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) return fail(error_from_errno(errno, "read " + path));
  HolderId id;
  const char* const end = text.data() + kDigits;
  const auto parsed = std::from_chars(text.data(), end, id.value, 16);
  const bool whole = static_cast<std::size_t>(count) == kDigits + 1 && text[kDigits] == '\n';
  if (!whole || parsed.ec != std::errc{} || parsed.ptr != end || id.value == 0) {
    return fail(make_error(RuntimeError::bad_argument,
                           path + ": expected 16 hex digits and a line end, as blockd writes them; "
                                  "a new identity would lose this node's attachments, so "
                                  "none is made"));
  }
  return id;
}

Result<std::string> new_node_id() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof(id), 0) != sizeof(id)) {
      return fail(error_from_errno(errno, "getrandom"));
    }
  }
  std::array<char, kDigits> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + kDigits, id, 16);
  const std::string hex(digits.data(), written.ptr);
  return std::string(kDigits - hex.size(), '0') + hex + "\n";
}

// Durable under its final name, or not there at all; an older file is never replaced.
Result<void> write_once(const std::string& path, const std::string& text) {
  const std::string draft = path + "." + std::to_string(::getpid());
  {
    const Descriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file) return fail(error_from_errno(errno, "create " + draft));
    if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::fsync(file.get()) != 0) {
      return fail(error_from_errno(errno, "write " + draft));
    }
  }
  const bool linked = ::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST;
  const int link_error = errno;
  ::unlink(draft.c_str());
  if (!linked) return fail(error_from_errno(link_error, "create " + path));
  const Descriptor folder(::open(std::filesystem::path(path).parent_path().c_str(),
                                 O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return fail(error_from_errno(errno, "sync " + path));
  return {};
}

}  // namespace

Result<HolderId> load_or_make_node_id(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return fail(error_from_errno(error.value(), "create " + folder));
  const std::string path = folder + "/node-id";
  if (!std::filesystem::exists(path, error)) {
    const auto text = new_node_id();
    if (!text) return fail(text.error());
    SARSEN_TRY(write_once(path, *text));
  }
  return read_node_id(path);
}

}  // namespace sarsen::blockd
