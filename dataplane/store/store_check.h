// Looking at a whole store: scrub (is every byte what its checksum says?) and audit (does every
// block have one owner?).
#pragma once

#include "dataplane/store/store_read.h"
#include "dataplane/store/store_state.h"

namespace sarsen {

// Reads in pages and yields between them; writes go on.
Task<Result<ScrubReport>> scrub_store(StoreState& state, StoreRead& reader, ScrubPace pace);
// The caller keeps the destager quiet. Error: corrupt_index, with what does not balance.
Task<Result<SpaceAccount>> audit_store(StoreState& state);
SpaceAccount space_account(const StoreState& state);

}  // namespace sarsen
