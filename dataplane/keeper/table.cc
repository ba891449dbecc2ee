#include "dataplane/keeper/table.h"

#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace sarsen::keeper {
namespace {

void unmap_state(std::byte* state, std::uint32_t bytes) {
  if (state != nullptr) ::munmap(state, bytes);
}

}  // namespace

Table::~Table() {
  for (Entry& entry : *entries_) clear(entry);
}

Status Table::put(std::string_view name, std::string_view kind, std::uint64_t value,
                  std::span<const std::byte> state, std::span<const int> descriptors) {
  Entry* entry = find(name);
  if (entry == nullptr) {
    for (Entry& candidate : *entries_) {
      if (candidate.used()) continue;
      entry = &candidate;
      break;
    }
  }
  if (entry == nullptr) return Status::full;
  std::byte* copy = nullptr;
  if (!state.empty()) {
    void* mapped = ::mmap(nullptr, state.size(), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (mapped == MAP_FAILED) return Status::no_memory;
    copy = static_cast<std::byte*>(mapped);
    std::memcpy(copy, state.data(), state.size());
  }
  clear(*entry);
  name.copy(entry->name, sizeof(entry->name) - 1);
  kind.copy(entry->kind, sizeof(entry->kind) - 1);
  entry->value = value;
  entry->state = copy;
  entry->state_bytes = static_cast<std::uint32_t>(state.size());
  std::copy(descriptors.begin(), descriptors.end(), entry->descriptors.begin());
  entry->descriptor_count = static_cast<std::uint32_t>(descriptors.size());
  return Status::ok;
}

Entry* Table::find(std::string_view name) {
  if (name.empty()) return nullptr;
  for (Entry& entry : *entries_) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

Entry* Table::after(std::string_view name) {
  Entry* best = nullptr;
  for (Entry& entry : *entries_) {
    if (!entry.used() || std::string_view(entry.name) <= name) continue;
    if (best == nullptr || std::string_view(entry.name) < std::string_view(best->name)) {
      best = &entry;
    }
  }
  return best;
}

void Table::close_descriptors(Entry& entry) {
  for (std::uint32_t i = 0; i < entry.descriptor_count; ++i) ::close(entry.descriptors[i]);
  entry.descriptor_count = 0;
}

void Table::clear(Entry& entry) {
  close_descriptors(entry);
  unmap_state(entry.state, entry.state_bytes);
  entry = Entry{};
}

}  // namespace sarsen::keeper
