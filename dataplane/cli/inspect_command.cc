#include <memory>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "dataplane/cli/device_commands.h"
#include "dataplane/cli/inspect_report.h"
#include "dataplane/cli/one_shard.h"
#include "dataplane/cli/overlay_disk.h"
#include "dataplane/runtime/uring/disk_file.h"

namespace sarsen {
namespace {

struct InspectRun {
  const InspectOptions& options;
  std::optional<ObjectKey> object;
  std::shared_ptr<DiskFile> file;
  Json report;
  bool sound = true;
  std::optional<std::string> could_not;

  bool wants(InspectPart part) const {
    return options.part == part || options.part == InspectPart::all;
  }
};

Json superblock_copies(BlockingDisk& disk) {
  Json copies = Json::array();
  const std::uint64_t size = disk.info().size_bytes;
  std::vector<std::byte> block(kBlockBytes);
  for (std::uint32_t copy = 0; copy < kSuperblockCopies; ++copy) {
    const std::uint64_t offset = copy < 2 ? copy * kSuperblockSpacing
                                          : size - (kSuperblockCopies - copy) * kSuperblockSpacing;
    Json row{{"copy", copy}, {"byte", offset}};
    if (auto read = disk.read(ByteOffset(offset), block); !read) {
      row["state"] = read.error().message();
    } else if (auto decoded = decode_superblock(copy, block); !decoded) {
      row["state"] = decoded.error().message();
    } else {
      row["state"] = "valid";
      row["sequence"] = decoded->sequence;
      row["start_count"] = decoded->start_count;
      row["device_id"] = to_string(decoded->device);
      row["size"] = decoded->geometry.device_bytes;
    }
    copies.push_back(row);
  }
  return copies;
}

Json superblock_report(const SuperblockReading& reading) {
  const Superblock& superblock = reading.superblock;
  const StoreGeometry& geometry = superblock.geometry;
  return {{"copies_equal", reading.copies_good},
          {"copies_bad", reading.copies_bad},
          {"copies_of_another_update", reading.copies_older},
          {"device_id", to_string(superblock.device)},
          {"cluster", to_string(superblock.cluster)},
          {"osd_id", superblock.osd_id},
          {"sequence", superblock.sequence},
          {"start_count", superblock.start_count},
          {"formatted", describe_time(superblock.formatted_wall_time_ns)},
          {"features_incompatible", superblock.features_incompatible},
          {"features_read_only", superblock.features_read_only},
          {"features_compatible", superblock.features_compatible},
          {"geometry",
           {{"device_bytes", geometry.device_bytes},
            {"table_region_bytes", geometry.table_region_bytes},
            {"journal_byte", geometry.segment(0).value},
            {"segment_bytes", geometry.segment_bytes},
            {"segments", geometry.segment_count},
            {"lanes", geometry.lane_count},
            {"chunks_byte", geometry.chunks_start().value},
            {"chunk_bytes", geometry.chunk_bytes},
            {"chunks", geometry.chunk_count}}}};
}

// Of a device that is no store: whose it is.
void describe_stranger(InspectRun& run) {
  Json found = Json::array();
  if (const auto descriptor = run.file->reopen()) {
    if (auto signatures = foreign_signatures(*descriptor, run.options.path)) {
      for (const auto& signature : *signatures) {
        found.push_back({{"signature", signature.what},
                         {"label", signature.label},
                         {"byte", signature.offset}});
      }
    }
    close(*descriptor);
  }
  run.report["signatures_of_others"] = found;
}

Task<void> inspect_parts(InspectRun* run, Env& env, Disk& disk, const StoreContents* contents) {
  Inspection inspection{
      .env = env, .disk = disk, .contents = *contents, .object = run->object, .sound = true};
  if (run->wants(InspectPart::journal)) {
    auto journal = co_await inspect_journal(&inspection);
    if (!journal) {
      run->could_not = journal.error().message();
    } else {
      run->report["journal"] = *std::move(journal);
    }
  }
  co_await env.blocking.run([&] {
    if (contents->table && run->wants(InspectPart::table)) {
      run->report["table"] = inspect_table(inspection);
    }
    if (contents->db && run->wants(InspectPart::index)) {
      run->report["index"] = inspect_index(inspection);
    }
    if (contents->db && run->wants(InspectPart::allocator)) {
      run->report["allocator"] = inspect_allocator(inspection);
    }
    if (contents->db && run->object) run->report["object"] = inspect_object(inspection);
    return true;
  });
  run->sound = run->sound && inspection.sound;
}

Task<void> inspect_device(ShardContext context, InspectRun* run) {
  auto below = open_blocking_disk(run->file);
  if (!below) {
    run->could_not = below.error().message();
    co_return;
  }
  OverlayImage image(**below);
  OverlayDisk disk(image, context.env.executor);
  run->report["path"] = run->options.path;
  run->report["size"] = describe_bytes(image.info().size_bytes);
  if (image.info().size_bytes < 4 * kSuperblockSpacing) {
    run->report["verdict"] = "not a Sarsen store: too small for one";
    run->sound = false;
    co_return;
  }
  run->report["superblock_copies"] = superblock_copies(image);
  auto contents = co_await read_store_contents(context.env, disk, image);
  if (!contents) {
    run->report["verdict"] = contents.error().message();
    run->sound = false;
    describe_stranger(*run);
    co_return;
  }
  if (contents->reading.copies_bad > 0) run->sound = false;
  if (run->wants(InspectPart::superblock)) {
    run->report["superblock"] = superblock_report(contents->reading);
  }
  if (contents->damage) {
    run->report["damage"] = contents->damage->message();
    run->sound = false;
  }
  co_await inspect_parts(run, context.env, disk, &*contents);
  co_await context.env.blocking.run([&] {
    contents->db.reset();
    return true;
  });
  run->report["verdict"] = run->sound ? "readable, nothing damaged was met; fsck looks at the data"
                                      : "damaged; see above, and fsck for what is affected";
}

}  // namespace

ExitCode run_device_inspect(const InspectOptions& options) {
  InspectRun run{.options = options, .object = {}, .file = {}, .report = {}, .could_not = {}};
  if (options.object) {
    const auto object = parse_object(*options.object);
    if (!object) {
      return print_failure(ExitCode::could_not, object.error().message(), options.format);
    }
    run.object = *object;
  }
  auto file = DiskFile::open(options.path, OpenMode::inspect);
  if (!file) return print_failure(ExitCode::could_not, file.error().message(), options.format);
  run.file = *std::move(file);
  const auto ran =
      run_on_one_shard([&run](ShardContext context) { return inspect_device(context, &run); });
  if (!ran) run.could_not = ran.error().message();
  if (run.could_not) {
    return print_failure(ExitCode::could_not, options.path + ": " + *run.could_not, options.format);
  }
  print_report(run.report, options.format);
  return run.sound ? ExitCode::ok : ExitCode::problems;
}

}  // namespace sarsen
