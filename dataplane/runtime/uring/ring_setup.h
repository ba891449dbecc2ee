// How every ring of Sarsen is set up: one issuer, completions only when it asks for them.
#pragma once

#include <errno.h>
#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sarsen {

struct RingSizes {
  unsigned submissions;  // entries, rounded up to a power of two by the kernel
  unsigned completions;
};

// SINGLE_ISSUER     only the thread that enabled the ring submits: no locks in the kernel.
// DEFER_TASKRUN     completions run in io_uring_enter and nowhere else, so they come in batches.
// TASKRUN_FLAG      user space sees without a system call that there is something to run.
// SUBMIT_ALL        a bad submission fails alone.
// R_DISABLED        made on the starter's thread, which can report errors; enabled on the shard's.
// COOP_TASKRUN is contained in DEFER_TASKRUN. Gives 0, or the errno value.
inline int set_up_ring(io_uring& ring, RingSizes sizes) {
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                     IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
                     IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED | IORING_SETUP_CLAMP |
                     IORING_SETUP_CQSIZE;
  parameters.cq_entries = sizes.completions;
  return -io_uring_queue_init_params(sizes.submissions, &ring, &parameters);
}

// Makes the calling thread the ring's issuer. (liburing 2.3 declares its own function for this, but
// does not export it.) Gives 0, or the errno value.
inline int enable_ring(const io_uring& ring) {
  const long result =
      syscall(SYS_io_uring_register, ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  return result == 0 ? 0 : errno;
}

}  // namespace sarsen
