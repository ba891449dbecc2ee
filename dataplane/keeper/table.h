// What the keeper holds: for each name its kind, a number, opaque state and open descriptors.
//
// Memory   A fixed array made at start and locked with the process; only states are mapped when
// they
//          come, and a failure to do so is an answer to the client. Nothing else is allocated.
// Owns     The descriptors it was given, until they are dropped, replaced or failed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dataplane/keeper/protocol.h"

namespace sarsen::keeper {

struct Entry {
  char name[sizeof(Message::name)] = {};
  char kind[sizeof(Message::kind)] = {};
  std::uint64_t value = 0;
  bool failed = false;
  std::uint32_t descriptor_count = 0;
  std::array<int, kDescriptorsMax> descriptors = {};
  std::byte* state = nullptr;
  std::uint32_t state_bytes = 0;

  bool used() const { return name[0] != '\0'; }
};

class Table {
 public:
  Table() : entries_(std::make_unique<std::array<Entry, kEntriesMax>>()) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table();

  // Takes the descriptors on ok and only then. The older content of the name stays on any error.
  Status put(std::string_view name, std::string_view kind, std::uint64_t value,
             std::span<const std::byte> state, std::span<const int> descriptors);
  // nullptr when there is none.
  Entry* find(std::string_view name);
  // The entry with the smallest name greater than `name`, or nullptr.
  Entry* after(std::string_view name);
  // In their order: of a FUSE device the connection goes before the mount, so that a mount whose
  // server is dead has nobody left to wait for.
  static void close_descriptors(Entry& entry);
  static void clear(Entry& entry);

 private:
  std::unique_ptr<std::array<Entry, kEntriesMax>> entries_;
};

}  // namespace sarsen::keeper
