#!/bin/bash
# volume_kill.sh [BUILD] [--kills N] [--minutes M]: ext4 and xfs, sectors of 4096 and 512 bytes, on images of a whole node (mon, OSD, keeper,
# blockd), whose processes are killed with -9 under fio verify, one at a time, N of each in all (default 8; OSD, blockd, keeper). I/O waits and
# goes on without an error, fsck is clean, files are intact. Needs root, FUSE and loop devices. Ends with "N passed, N failed".
#
# Power loss of the node cannot be made here: the simulator and the crash explorer do that.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
programs=build/dev kills=8 minutes=5
while [ $# -gt 0 ]; do
  case $1 in
    --kills) kills=$2; shift ;;
    --minutes) minutes=$2; shift ;;
    *) programs=$1 ;;
  esac
  shift
done
if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ] || [ ! -c /dev/loop-control ]; then
  echo "volume_kill: needs root, FUSE and loop devices"
  exit 77
fi
# shellcheck source=tests/process/cluster.sh
. "$here/cluster.sh"
# shellcheck source=tests/process/file_system_load.sh
. "$here/file_system_load.sh"
cluster_init "$(realpath "$programs")" "$(mktemp -d /tmp/volume_kill.XXXXXX)"
mnt=$folder/mnt
mkdir "$mnt"
rounds=$(((kills + 3) / 4))  # of each kind, for each of the four file systems
declare -A killed=([osd]=0 [blockd]=0 [keeper]=0 [mon]=0)
passed=0 failed=0 fio_pid='' watchdog_pid='' begun=$SECONDS

cleanup() {
  trap - EXIT
  touch "$folder/stop"
  kill "$watchdog_pid" 2>/dev/null
  cluster_stop
  [ -z "$fio_pid" ] || wait "$fio_pid" 2>/dev/null
  mountpoint -q "$mnt" && timeout 20 umount "$mnt"
  [ ! -s "$folder/node/node-id" ] ||
    timeout 20 "$build/dataplane/blockd/fuse/sarsen-loop" sweep "sarsen:$(cat "$folder/node/node-id"):" >/dev/null
  mountpoint -q "$mnt" && { echo "volume_kill: $mnt is still mounted"; return; }
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
trap 'echo "volume_kill: out of time; I/O that never ends is an error, too"; echo "$passed passed, 1 failed"; exit 1' USR1

written() { awk '{ print $5 + $1 }' "/sys/block/${device#/dev/}/stat"; }
moved_since() { [ "$(written)" -gt "$1" ]; }
# Requests complete again: the pause is what somebody who uses the device notices.
note_pause() {
  local before=$2 count
  count=$(written)
  await 30 moved_since "$count" || return 1
  echo $(($(now_ms) - before)) >>"$folder/pauses.$1"
}

keeper_holds() { "$build/tests/process/keeper_control" "$SARSEN_KEEPER" list 2>/dev/null | grep -q "^rbd/$image fuse$"; }

# kill_one NAME: with requests in flight; returns when requests complete again.
kill_one() {
  local before
  await 20 in_flight || return 1
  before=$(now_ms)
  "kill_$1" && "start_$1" && note_pause "$1" "$before" || return 1
  # Losing keeper and blockd at once loses the device, so the new keeper must be full before blockd is killed.
  await 10 keeper_holds || return 1
  killed[$1]=$((killed[$1] + 1))
}

# While the mon is dead: I/O goes on, and a new blockd takes over.
without_mon() {
  await 20 in_flight || return 1
  kill_mon
  killed[mon]=$((killed[mon] + 1))
  await 20 moved_since $(($(written) + 20)) || return 1
  kill_blockd
  killed[blockd]=$((killed[blockd] + 1))
  start_blockd && await 20 moved_since $(($(written) + 20)) && start_mon
}

# An upgrade: the next blockd waits for this one, which leaves its devices.
replace_blockd() {
  local old=${cluster_pid[blockd]} before
  : >"$folder/blockd.log"
  launch_blockd
  await 10 grep -q 'waits for its end' "$folder/blockd.log" || return 1
  before=$(now_ms)
  kill -TERM "$old"
  wait "$old" || { echo "blockd ended with $?"; return 1; }
  ready blockd image_is "$image" serving && note_pause replaced "$before"
}

kill_under_load() {
  local i name
  for i in $(seq "$rounds"); do
    for name in osd blockd keeper; do
      sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
      kill_one $name || return 1
      echo "after $name $i" >"$mnt/note.$name.$i"
    done
  done
  without_mon && replace_blockd
}

write_files() {
  head -c 8000000 /dev/urandom >"$mnt/large"
  for i in $(seq 200); do echo "file $i of $image" >"$mnt/small.$i"; done
  (cd "$mnt" && md5sum large small.*) >"$folder/sums"
}

# file_system TYPE SECTOR_BYTES
file_system() {
  image=kill-$1-$2
  "$cli" image create "$image" --size 384M >/dev/null && device=$("$cli" image map "$image" --sector "$2") || return 1
  [ "$(blockdev --getss "$device")" = "$2" ] || { echo "sector size"; return 1; }
  make_file_system "$1" && mount -o discard "$device" "$mnt" && write_files || return 1
  start_fio 32
  kill_under_load && stop_fio || return 1
  rm "$mnt"/verify.* && sync && timeout 60 fstrim "$mnt" || return 1
  umount "$mnt" && check_file_system "$1" && mount "$device" "$mnt" || return 1
  (cd "$mnt" && md5sum --quiet -c "$folder/sums") || return 1
  [ "$(cat "$mnt/note.keeper.$rounds")" = "after keeper $rounds" ] || return 1
  umount "$mnt" && "$cli" image unmap "$image" || return 1
  [ ! -e "/sys/block/${device#/dev/}/loop" ] || { echo "$device is still bound"; return 1; }
  timeout 60 "$cli" image rm "$image" --confirm "rbd/$image" >/dev/null
}

has_size() { [ "$(blockdev --getsz "$device")" = $(($1 << 11)) ]; }
# Grown while it is mounted and written, with blockd killed right after.
online_resize() {
  image=kill-resize
  "$cli" image create $image --size 384M >/dev/null && device=$("$cli" image map $image) || return 1
  make_file_system xfs && mount "$device" "$mnt" && write_files || return 1
  "$cli" image resize $image --size 512M >/dev/null && await 20 has_size 512 || return 1
  kill_blockd && "$cli" image resize $image --size 640M >/dev/null && start_blockd && await 20 has_size 640 || return 1
  xfs_growfs "$mnt" >"$folder/resize.log" 2>&1 || { cat "$folder/resize.log"; return 1; }
  (cd "$mnt" && md5sum --quiet -c "$folder/sums") || return 1
  umount "$mnt" && check_file_system xfs && "$cli" image unmap $image
}

ended() { ! kill -0 "$1" 2>/dev/null; }
# Nobody will serve it again: umount waits and cannot be killed, until the keeper makes the device fail.
fail_without_blockd() {
  local waiting
  image=kill-fail
  "$cli" image create $image --size 128M >/dev/null && device=$("$cli" image map $image) || return 1
  make_file_system ext4 && mount "$device" "$mnt" && echo lost >"$mnt/file" || return 1
  kill_blockd
  umount "$mnt" 2>/dev/null &
  waiting=$!
  await 5 in_flight || { echo "umount wrote nothing"; return 1; }
  ! ended $waiting || { echo "umount did not wait"; return 1; }
  "$cli" image fail $image >/dev/null || return 1
  await 10 ended $waiting || { echo "umount does not end"; return 1; }
  wait $waiting
  start_blockd && image_is $image failed && "$cli" image unmap $image && [ -z "$(mapped_field $image state)" ]
}

# Another holder takes the image over: the device answers errors at once, and other images go on.
fenced() {
  local other
  image=kill-fenced
  "$cli" image create $image --size 64M >/dev/null && device=$("$cli" image map $image) || return 1
  "$cli" image create kill-other --size 64M >/dev/null && other=$("$cli" image map kill-other) || return 1
  dd if=/dev/urandom of="$device" bs=64k count=16 oflag=direct status=none || return 1
  "$build/tests/process/detach_image" "$SARSEN_MON" "$(mapped_field $image image_id)" \
    "$(mapped_field $image holder)" "$(mapped_field $image attach_epoch)" || return 1
  await 10 image_is $image fenced || return 1
  ! timeout 10 dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none 2>"$folder/dd.log" || return 1
  grep -q 'Input/output error' "$folder/dd.log" || return 1
  dd if=/dev/urandom of="$other" bs=64k count=16 oflag=direct status=none || return 1
  "$cli" image unmap $image && "$cli" image unmap kill-other
}

step() {
  local before=$SECONDS
  if "$@"; then
    passed=$((passed + 1))
    printf 'volume_kill %-28s ok     %3d s\n' "$*" $((SECONDS - before))
  else
    failed=$((failed + 1))
    printf 'volume_kill %-28s FAILED %3d s\n' "$*" $((SECONDS - before))
    "$cli" image mapped
    tail -n 8 "$folder"/*.log 2>/dev/null
    echo "$passed passed, $failed failed"
    exit 1
  fi
}
# Of a file of milliseconds: "median 12, longest 34".
pauses_of() {
  sort -n "$folder/pauses.$1" | awk '{ all[NR] = $1 } END { print "median " all[int((NR + 1) / 2)] ", longest " all[NR] }'
}

(
  sleep $((minutes * 60)) &
  trap 'kill $!' TERM
  wait $! && kill -USR1 $$
) &
watchdog_pid=$!
cluster_create "$folder/osd0.img" --create --size 2G && start_osd && start_keeper && start_blockd || exit 1
step file_system ext4 4096
step file_system ext4 512
step file_system xfs 4096
step file_system xfs 512
step online_resize
step fail_without_blockd
step fenced
echo "fio wrote and verified 32 MiB $(wc -l <"$folder/fio_runs") times without an error"
echo "killed with -9: osd ${killed[osd]}, blockd ${killed[blockd]}, keeper ${killed[keeper]}, mon ${killed[mon]} times"
for name in osd blockd keeper replaced; do
  echo "pause in ms, with the start of the next one, $name: $(pauses_of $name)"
done
echo "took $((SECONDS - begun)) s"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
