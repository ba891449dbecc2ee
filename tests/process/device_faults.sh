#!/bin/bash
# device_faults.sh [BUILD]: a whole node whose OSD's device is full, answers EIO, or stalls. What cannot be done is an error that the file system
# understands; nothing aborts; what was acknowledged is there afterwards. The faulty device is nbdkit with its error filter, made a file by
# nbdfuse (O_DIRECT works on it); it stalls when nbdkit is stopped. Needs root. Ends with "N passed, N failed".
set -uo pipefail
here=$(dirname "$(realpath "$0")")
if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ] || [ ! -c /dev/loop-control ]; then
  echo "device_faults: needs root, FUSE and loop devices"
  exit 77
fi
for tool in nbdkit nbdfuse mkfs.xfs; do
  command -v $tool >/dev/null || { echo "device_faults: needs $tool"; exit 77; }
done
# shellcheck source=tests/process/cluster.sh
. "$here/cluster.sh"
top=$(mktemp -d /tmp/device_faults.XXXXXX)
programs=$(realpath "${1:-build/dev}")
passed=0 failed=0 fuse_pid=''

cleanup() {
  stop_node
  rm -rf "$top"
}
trap cleanup EXIT

# A node of its own for each case, in $top/NAME.
new_folder() {
  mkdir "$top/$1" "$top/$1/mnt"
  cluster_init "$programs" "$top/$1"
  mnt=$folder/mnt
}
stop_node() {
  [ -n "${folder:-}" ] || return 0
  resume_device
  rm -f "$folder/broken"
  cluster_stop
  mountpoint -q "$mnt" && timeout 20 umount "$mnt"
  [ ! -s "$folder/node/node-id" ] ||
    timeout 20 "$build/dataplane/blockd/fuse/sarsen-loop" sweep "sarsen:$(cat "$folder/node/node-id"):" >/dev/null
  if [ -n "$fuse_pid" ]; then
    await 10 umount "$folder/disk" 2>/dev/null || umount -l "$folder/disk"
    timeout 10 tail --pid="$fuse_pid" -f /dev/null || kill -KILL "$fuse_pid"
    wait "$fuse_pid" 2>/dev/null
    fuse_pid=''
  fi
}

# A file of 1 GiB that answers EIO while FOLDER/broken exists.
faulty_device() {
  mkdir "$folder/disk"
  nbdfuse "$folder/disk/osd0" --command nbdkit -s --exit-with-parent --filter=error memory 1G error=EIO error-rate=100% \
    error-file="$folder/broken" >"$folder/nbdfuse.log" 2>&1 &
  fuse_pid=$!
  await 10 test -e "$folder/disk/osd0"
}
nbdkit_pid() { [ -z "$fuse_pid" ] || pgrep -P "$fuse_pid" nbdkit; }
stall_device() { kill -STOP "$(nbdkit_pid)"; }
resume_device() {
  local pid
  pid=$(nbdkit_pid) || true
  [ -z "$pid" ] || kill -CONT "$pid" 2>/dev/null
}

start_node() { start_osd && start_keeper && start_blockd; }
map_image() { "$cli" image create "$1" --size "$2" >/dev/null && device=$("$cli" image map "$1"); }

# check SENTENCE FUNCTION: runs it with a node of its own, and counts.
check() {
  local before=$SECONDS
  new_folder "$2"
  if "$2" >"$folder/output" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $1 ($((SECONDS - before)) s)"
    sed -n 's/^note: /          /p' "$folder/output"
  else
    failed=$((failed + 1))
    echo "FAILED  $1"
    tail -n 12 "$folder/output" "$folder/osd.log" "$folder/blockd.log" | sed 's/^/        /'
  fi
  stop_node
}

write_at() { dd if="$1" of="$device" bs=1M seek="$2" count="$3" oflag=direct conv=notrunc status=none; }
same_at() { dd if="$device" bs=1M skip="$2" count="$3" iflag=direct status=none | cmp - "$1"; }

# The image is larger than the device. Overwriting and trimming work when nothing else does; then there is room again.
full_device() {
  local chunk=0
  cluster_create "$folder/osd0.img" --create --size 512M && start_node && map_image big 2G || return 1
  head -c 16M /dev/urandom >"$folder/a" && head -c 16M /dev/urandom >"$folder/b"
  while write_at "$folder/a" $((chunk * 16)) 16 2>"$folder/error"; do
    chunk=$((chunk + 1))
    [ $chunk -lt 40 ] || { echo "never full"; return 1; }
  done
  grep -q 'No space left on device' "$folder/error" || { cat "$folder/error"; return 1; }
  echo "note: full after $chunk times 16 MiB"
  [ $chunk -gt 15 ] || { echo "too little fits"; return 1; }
  write_at "$folder/b" 0 16 || { echo "overwriting does not work"; return 1; }
  same_at "$folder/b" 0 16 && same_at "$folder/a" 16 16 || return 1
  blkdiscard -o $((128 << 20)) -l $((96 << 20)) "$device" || { echo "trimming does not work"; return 1; }
  await 30 write_at "$folder/b" 1024 16 || { echo "no room after trimming"; return 1; }
  same_at "$folder/b" 1024 16 && same_at "$folder/a" 112 16 && is_running osd && is_running blockd || return 1
  # And all of it after a crash.
  kill_osd
  start_osd && same_at "$folder/b" 1024 16 && same_at "$folder/b" 0 16 && "$cli" image unmap big
}

# A file system that fills up says so, and works again after files were deleted.
full_file_system() {
  local i=0
  cluster_create "$folder/osd0.img" --create --size 512M && start_node && map_image big 2G || return 1
  mkfs.xfs -q "$device" && mount -o discard "$device" "$mnt" || return 1
  head -c 16M /dev/urandom >"$folder/a"
  cp "$folder/a" "$mnt/kept" && sync -f "$mnt" || return 1
  while dd if="$folder/a" of="$mnt/file.$i" bs=1M oflag=direct status=none 2>"$folder/error"; do
    i=$((i + 1))
    [ $i -lt 40 ] || { echo "never full"; return 1; }
  done
  echo "note: full after $i files of 16 MiB; $(cat "$folder/error")"
  grep -q 'No space left on device' "$folder/error" || return 1
  rm "$mnt"/file.* && sync -f "$mnt" && fstrim "$mnt" || return 1
  await 30 dd if="$folder/a" of="$mnt/again" bs=1M oflag=direct status=none || return 1
  umount "$mnt" && xfs_repair -n "$device" && mount "$device" "$mnt" || return 1
  cmp "$folder/a" "$mnt/kept" && cmp "$folder/a" "$mnt/again" || return 1
  umount "$mnt" && "$cli" image unmap big
}

# The device answers EIO for a while. Nobody gets wrong data or an acknowledgement that does not hold, and no process dies of it.
broken_device() {
  faulty_device && cluster_create "$folder/disk/osd0" && start_node && map_image disk 256M || return 1
  head -c 16M /dev/urandom >"$folder/a" && head -c 16M /dev/urandom >"$folder/b"
  write_at "$folder/a" 0 16 || return 1
  touch "$folder/broken"
  ! timeout 60 dd if="$folder/b" of="$device" bs=1M seek=32 oflag=direct conv=notrunc status=none 2>"$folder/error" ||
    { echo "a write was acknowledged"; return 1; }
  echo "note: $(cat "$folder/error")"
  grep -q 'Input/output error' "$folder/error" || return 1
  is_running osd && is_running blockd && "$cli" status || return 1
  await 20 health_says OSD_DEVICE_READ_ONLY || return 1
  echo "note: $("$cli" health | tr '\n' ' ')"
  rm "$folder/broken"
  # The store takes no more writes until it has been opened again; what was acknowledged is there.
  same_at "$folder/a" 0 16 || { echo "acknowledged data cannot be read"; return 1; }
  kill_osd
  start_osd && same_at "$folder/a" 0 16 && write_at "$folder/b" 64 16 && same_at "$folder/b" 64 16 && "$cli" image unmap disk
}

health_says() { [[ $("$cli" health) == *"$1"* ]]; }
has_resent() { [ "$(mapped_field "$1" resent)" -gt 0 ]; }
ended() { ! kill -0 "$1" 2>/dev/null; }
# The device answers nothing for longer than a try takes; I/O waits and goes on.
stalling_device() {
  local writer
  faulty_device && cluster_create "$folder/disk/osd0" && start_node && map_image disk 256M || return 1
  head -c 16M /dev/urandom >"$folder/a"
  write_at "$folder/a" 0 16 || return 1
  stall_device
  write_at "$folder/a" 32 16 &
  writer=$!
  # Longer than one try lasts.
  await 40 has_resent disk || { resume_device; return 1; }
  ! ended $writer || { echo "written without a device"; resume_device; return 1; }
  echo "note: $("$cli" health | tr '\n' ' '), requests waiting: $(mapped_field disk requests_waiting)"
  timeout 5 "$cli" image mapped || { echo "blockd hangs"; resume_device; return 1; }
  resume_device
  await 30 ended $writer || return 1
  wait $writer || { echo "the write failed"; return 1; }
  same_at "$folder/a" 32 16 && same_at "$folder/a" 0 16 && is_running osd && "$cli" image unmap disk
}

check "a full device: ENOSPC, overwriting and trimming work, then there is room again" full_device
check "a full file system: ENOSPC, and it works again after deleting" full_file_system
check "a device that answers EIO: errors, no process ends, acknowledged data are there" broken_device
check "a device that stalls: I/O waits and goes on" stalling_device
echo "$passed passed, $failed failed"
[ $failed = 0 ]
