// rocksdb::FileSystem over MetadataFiles: RocksDB lives in the metadata zone of a raw device and
// touches no file of the host.
//
// What is kept    *.sst in one copy; everything else (MANIFEST, CURRENT, IDENTITY and their
//                 temporary files) mirrored.
// What is not     OPTIONS files are refused (our options are code; RocksDB goes on without). *.log
//                 files exist only as handles, and refuse contents: the journal of the store is the
//                 log, and every write must say disableWAL.
// Names           directories are prefixes; any directory exists. Locks are in memory.
// Durability      Sync and RenameFile are durable when they return (metadata_files.h); syncing a
//                 directory has nothing left to do.
// Errors          no_space -> NoSpace, corrupt -> Corruption, not_found -> PathNotFound, others ->
//                 IOError.
// Borrows         the files, which outlive every handle.
// Invariant       I-META-6 the MANIFEST that CURRENT names is never removed: RocksDB 7.8 deletes it
//                 as an old one when it made a new one and then could not make CURRENT name that.
#pragma once

#include <memory>

#include <rocksdb/file_system.h>

#include "dataplane/store/metadata/metadata_files.h"

namespace sarsen {

std::shared_ptr<rocksdb::FileSystem> make_metadata_file_system(MetadataFiles& files);

rocksdb::IOStatus to_io_status(const Error& error);

}  // namespace sarsen
