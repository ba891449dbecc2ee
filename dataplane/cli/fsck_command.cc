#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/cli/device_commands.h"
#include "dataplane/cli/one_shard.h"
#include "dataplane/cli/overlay_disk.h"
#include "dataplane/runtime/uring/disk_file.h"
#include "dataplane/store/store_contents.h"

namespace sarsen {
namespace {

constexpr std::size_t kProblemsListed = 10'000;
constexpr std::uint32_t kPieceBlocks = 256;
constexpr std::size_t kProgressObjects = 256;

struct Fsck {
  std::shared_ptr<DiskFile> file;
  bool progress = false;

  Json problems = Json::array();
  Json notes = Json::array();
  std::uint64_t problem_count = 0;
  std::uint64_t objects = 0;
  std::uint64_t blocks_verified = 0;
  std::uint64_t blocks_corrupt = 0;
  std::string device_id;
  std::optional<std::string> could_not;
  // In the order of the index, then those that only the journal knows.
  std::vector<ObjectKey> order;
  std::unordered_set<ObjectKey> known;

  void problem(std::string kind, std::string affects, std::string detail) {
    ++problem_count;
    if (problems.size() >= kProblemsListed) return;
    problems.push_back({{"kind", std::move(kind)},
                        {"affects", std::move(affects)},
                        {"detail", std::move(detail)}});
  }
  void add_object(const ObjectKey& object) {
    if (known.insert(object).second) order.push_back(object);
  }
  // A device that cannot be read, or that is of somebody else, is not a verdict on a store.
  void meet(const Error& error, const std::string& what) {
    if (&error.category() == &runtime_errors() || is(error, StoreError::not_a_store) ||
        is(error, StoreError::format_unsupported)) {
      could_not = what + ": " + error.message();
    } else {
      problem(what, "the whole store", error.message());
    }
  }
};

std::string affected(const DamagedRange& range) {
  if (range.family == MetadataFamily::allocator) return "free space of a lane";
  if (range.family == MetadataFamily::meta) return "the positions of the journal";
  const auto name = [](const std::string& key) {
    const auto decoded = decode_leaf_key(std::as_bytes(std::span(key)));
    return decoded ? fmt::format("{} block {}", describe_object(decoded->object),
                                 decoded->leaf * kLeafBlocks)
                   : std::string("the end of the index");
  };
  return fmt::format("{} to {}", name(range.first), name(range.last));
}

// Collects the objects of the index, around what cannot be read of it. On a thread of the pool.
Result<void> list_index(Fsck& fsck, const MetadataDb& db) {
  auto damaged = db.damaged_ranges(MetadataDb::Look::everything);
  if (!damaged) return fail(damaged.error());
  for (const DamagedRange& range : *damaged) {
    fsck.problem("index block", affected(range), range.file);
  }
  std::string from;
  for (;;) {
    auto cursor = db.cursor(MetadataFamily::index, from, {});
    for (; cursor.valid(); cursor.next()) {
      from = std::string(cursor.key());
      const auto key = decode_leaf_key(std::as_bytes(std::span(cursor.key())));
      if (key) {
        fsck.add_object(key->object);
      } else {
        fsck.problem("index key", "an object that cannot be named", key.error().message());
      }
    }
    const auto status = cursor.status();
    if (status) return {};
    // On behind the damage, which was listed above.
    const auto next =
        std::find_if(damaged->begin(), damaged->end(), [&from](const DamagedRange& range) {
          return range.family == MetadataFamily::index && range.last >= from;
        });
    if (next == damaged->end()) return fail(status.error());
    from = next->last + std::string(1, '\0');
    damaged->erase(next);
  }
}

Task<Result<void>> look_at_journal(Fsck* fsck, Env& env, Disk& disk,
                                   const StoreContents* contents) {
  const IndexRoots& roots = contents->roots;
  auto journal = co_await recover_journal(env, disk, contents->reading.superblock, roots.live_from,
                                          [&roots](LaneId lane, LaneSequence sequence) {
                                            return lane.value < roots.applied.size() &&
                                                   sequence <= roots.applied[lane.value];
                                          });
  if (!journal) co_return fail(journal.error());
  for (const LostRecords& lost : journal->lost) {
    fsck->problem("journal records lost", "objects that cannot be named",
                  fmt::format("stream {} of run {}, records {} to {}", lost.stream, lost.run,
                              lost.first.value, lost.end.value - 1));
  }
  if (journal->blocks_unreadable > 0) {
    fsck->notes.push_back(
        fmt::format("{} blocks of the journal area cannot be read", journal->blocks_unreadable));
  }
  if (journal->headers_rebuilt > 0) {
    fsck->notes.push_back(
        fmt::format("{} journal headers were rebuilt from their copies", journal->headers_rebuilt));
  }
  if (journal->records_rolled_back > 0) {
    fsck->notes.push_back(fmt::format("{} journal records at the end were never acknowledged",
                                      journal->records_rolled_back));
  }
  for (const RecoveredRecord& recovered : journal->records) {
    if (recovered.record.block_count > 0) fsck->add_object(recovered.record.object);
  }
  co_return Result<void>{};
}

void judge_superblocks(Fsck& fsck, const SuperblockReading& reading) {
  fsck.device_id = to_string(reading.superblock.device);
  if (reading.copies_bad > 0) {
    fsck.problem("superblock", "no data, but less protection",
                 fmt::format("{} of 4 copies are bad; the next start of the store rewrites them",
                             reading.copies_bad));
  }
  if (reading.copies_older > 0) {
    fsck.notes.push_back(
        fmt::format("{} superblock copies are of an unfinished update", reading.copies_older));
  }
}

// Superblock, table, index and journal, as they lie there. False: there is no store to open.
Task<bool> look_at_structures(Fsck* fsck, Env& env, OverlayImage* image, Disk& disk) {
  auto contents = co_await read_store_contents(env, disk, *image);
  if (!contents) {
    fsck->meet(contents.error(), "superblock");
    co_return false;
  }
  judge_superblocks(*fsck, contents->reading);
  if (contents->damage) {
    fsck->meet(*contents->damage, contents->table ? "metadata database" : "device table");
    co_return false;
  }
  if (const auto repairs = contents->table_stats_found.repairs; repairs > 0) {
    fsck->problem("device table", "no data, but less protection",
                  fmt::format("{} records are good in one mirror only", repairs));
  }
  auto listed = co_await env.blocking.run([&] { return list_index(*fsck, *contents->db); });
  if (!listed) fsck->meet(listed.error(), "index");
  if (const auto healed = contents->files->stats().blocks_healed; healed > 0) {
    fsck->problem("metadata file", "no data, but less protection",
                  fmt::format("{} blocks are good in one copy only", healed));
  }
  auto journal = co_await look_at_journal(fsck, env, disk, &*contents);
  if (!journal) fsck->meet(journal.error(), "journal");
  co_await env.blocking.run([&] {
    contents->db.reset();
    return true;
  });
  co_return true;
}

Task<void> verify_object(Fsck* fsck, Store* store, ObjectKey object, std::span<std::byte> buffer) {
  for (std::uint32_t first = 0; first < kBlocksPerObject; first += kPieceBlocks) {
    const auto runs =
        co_await store->allocation(object, {.first_block = first, .block_count = kPieceBlocks});
    const auto outcome = co_await store->read_partial(object, first, buffer);
    if (!runs || !outcome) {
      fsck->problem("unreadable",
                    fmt::format("{} blocks {} to {}", describe_object(object), first,
                                first + kPieceBlocks - 1),
                    (runs ? outcome.error() : runs.error()).message());
      continue;
    }
    for (const AllocationRun& run : *runs) {
      if (run.allocated) fsck->blocks_verified += run.block_count;
    }
    for (const std::uint32_t block : outcome->corrupt_blocks) {
      ++fsck->blocks_corrupt;
      fsck->problem("corrupt block", fmt::format("{} block {}", describe_object(object), block),
                    "its data does not match its checksum, or cannot be read");
    }
  }
}

Task<void> check_opened(Fsck* fsck, Env& env, Store* store) {
  auto buffer = env.buffers.allocate(std::size_t{kPieceBlocks} * kBlockBytes);
  if (!buffer) {
    fsck->could_not = buffer.error().message();
    co_return;
  }
  for (const ObjectKey& object : fsck->order) {
    co_await verify_object(fsck, store, object, buffer->span());
    ++fsck->objects;
    if (fsck->progress && fsck->objects % kProgressObjects == 0) {
      std::fprintf(stderr, "\r%s",
                   fmt::format("{} of {} objects", fsck->objects, fsck->order.size()).c_str());
    }
  }
  if (fsck->progress) std::fprintf(stderr, "\r%40s\r", "");
  auto audit = co_await store->audit();
  if (!audit) fsck->meet(audit.error(), "space accounting");
}

Task<void> check_device(ShardContext context, Fsck* fsck) {
  auto below = open_blocking_disk(fsck->file);
  if (!below) {
    fsck->could_not = below.error().message();
    co_return;
  }
  OverlayImage image(**below);
  OverlayDisk disk(image, context.env.executor);
  if (!co_await look_at_structures(fsck, context.env, &image, disk)) co_return;
  image.clear();  // the store meets what its daemon would meet

  StoreLimits limits;
  limits.destage_start_percent = 100;  // leave everything where it is
  limits.idle_destage_after = seconds(100LL * 365 * 24 * 3600);
  auto store = co_await Store::open(context.env, disk, image, limits);
  if (!store) {
    fsck->meet(store.error(), "opening the store");
    co_return;
  }
  co_await check_opened(fsck, context.env, store->get());
  co_await (*store)->stop();
}

// Keeps a daemon from starting on the store meanwhile, and notices one that runs.
Result<int> claim_for_reading(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return fail(error_from_errno(errno, "open " + path));
  const int exclusive = S_ISBLK(status.st_mode) ? O_EXCL : 0;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | exclusive);
  int errno_value = errno;
  if (descriptor >= 0) {
    struct flock lock{};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    if (exclusive != 0 || fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return descriptor;
    errno_value = errno == EACCES || errno == EAGAIN ? EBUSY : errno;
    close(descriptor);
  }
  if (errno_value == EBUSY) {
    return fail(make_error(RuntimeError::overloaded,
                           path + " is in use (a running sarsen-osd, a mount); fsck needs it for "
                                  "itself: stop the daemon first"));
  }
  return fail(error_from_errno(errno_value, "open " + path));
}

ExitCode report_fsck(const FsckOptions& options, const Fsck& fsck) {
  const bool clean = fsck.problem_count == 0;
  Json report{{"path", options.path},
              {"device_id", fsck.device_id},
              {"verdict", fsck.could_not ? "could not check"
                          : clean        ? "clean"
                                         : "problems found"},
              {"objects", fsck.objects},
              {"blocks_verified", fsck.blocks_verified},
              {"blocks_corrupt", fsck.blocks_corrupt},
              {"problems_found", fsck.problem_count}};
  if (fsck.problem_count > fsck.problems.size()) report["problems_listed"] = fsck.problems.size();
  if (!fsck.notes.empty() || options.format == OutputFormat::json) report["notes"] = fsck.notes;
  if (!clean || options.format == OutputFormat::json) report["problems"] = fsck.problems;
  if (fsck.could_not) report["error"] = *fsck.could_not;
  print_report(report, options.format);
  if (fsck.could_not) {
    std::fprintf(stderr, "sarsen: %s: %s\n", options.path.c_str(), fsck.could_not->c_str());
    return ExitCode::could_not;
  }
  return clean ? ExitCode::ok : ExitCode::problems;
}

}  // namespace

ExitCode run_device_fsck(const FsckOptions& options) {
  const auto claim = claim_for_reading(options.path);
  if (!claim) {
    return print_failure(ExitCode::could_not, claim.error().message(), options.format);
  }
  Fsck fsck;
  fsck.progress = isatty(STDERR_FILENO) != 0;
  auto file = DiskFile::open(options.path, OpenMode::inspect);
  if (!file) {
    close(*claim);
    return print_failure(ExitCode::could_not, file.error().message(), options.format);
  }
  fsck.file = *std::move(file);
  const auto ran =
      run_on_one_shard([&fsck](ShardContext context) { return check_device(context, &fsck); });
  if (!ran) fsck.could_not = ran.error().message();
  close(*claim);
  return report_fsck(options, fsck);
}

}  // namespace sarsen
