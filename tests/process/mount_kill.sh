#!/bin/bash
# mount_kill.sh [BUILD]: file systems on a FUSE + loop device whose server and keeper are killed with -9, one at a time, under
# fio verify. No I/O error, clean fsck, intact files. Needs root, /dev/fuse and loop devices. The last line is "N passed, N failed".
#
# A device without a server cannot be unmounted and its users cannot be killed, so whatever happens, this ends by failing
# every device (keeper) or by closing the last descriptors (killing server and keeper), and only then unmounts.
set -uo pipefail
build=$(realpath "${1:-build/dev}")
server=$build/tests/process/fuse_test_server
control=$build/tests/process/keeper_control
keeper=$build/dataplane/keeper/sarsen-keeper
loop=$build/dataplane/blockd/fuse/sarsen-loop
seconds_max=${SECONDS_MAX:-180}
kills_per_run=${KILLS:-10}
keeper_kills_per_run=${KEEPER_KILLS:-2}

[ "$(id -u)" = 0 ] || { echo "mount_kill: needs root"; exit 77; }
command -v strace >/dev/null || { echo "mount_kill: needs strace"; exit 77; }
for needed in /dev/fuse /dev/loop-control; do
  [ -c $needed ] || { echo "mount_kill: needs $needed"; exit 77; }
done
folder=$(mktemp -d /tmp/mount_kill.XXXXXX)
mnt=$folder/mnt
# shellcheck source=tests/process/file_system_load.sh
. "$(dirname "$(realpath "$0")")/file_system_load.sh"
mkdir "$folder/mnt"
pauses=$folder/pauses
server_pid='' keeper_pid='' watchdog_pid='' fio_pid='' name='' device=''
server_kills=0 keeper_kills=0 passed=0 failed=0
start_seconds=$SECONDS

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# await SECONDS COMMAND...: until it succeeds.
await() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { echo "mount_kill: gave up waiting: $*"; return 1; }
    sleep 0.01
  done
}

start_keeper() {
  "$keeper" --socket "$folder/keeper.sock" >>"$folder/keeper.log" 2>&1 &
  keeper_pid=$!
}

keeper_holds() { "$control" "$folder/keeper.sock" list 2>/dev/null | grep -q "^$name fuse$"; }

# start_server [ARGUMENT...]: returns when it serves.
start_server() {
  : >"$folder/server.log"
  "$server" --folder "$folder" --loop "$loop" --name "$name" --delay-us 3000 "$@" >"$folder/server.log" 2>&1 &
  server_pid=$!
  await 10 grep -q '^ready' "$folder/server.log" || { cat "$folder/server.log"; return 1; }
  device=$(sed -n 's/^ready //p' "$folder/server.log")
}

end_process() {
  kill "-$2" "$1" 2>/dev/null
  wait "$1" 2>/dev/null
}

collect_resent() { sed -n 's/^resent //p' "$folder/server.log" >>"$folder/resent"; }

# The pause is what a reader of the device sees, from the kill to the end of its read.
kill_server() {
  local before
  collect_resent
  before=$(now_ms)
  end_process "$server_pid" KILL
  start_server || return 1
  timeout 20 dd if="$device" of=/dev/null bs=4096 count=1 iflag=direct status=none || return 1
  echo $(($(now_ms) - before)) >>"$pauses"
  server_kills=$((server_kills + 1))
}

# An upgrade: the old server ends by itself while the new one already waits.
replace_server() {
  kill -TERM "$server_pid"
  wait "$server_pid"
  start_server
}

kill_keeper() {
  end_process "$keeper_pid" KILL
  start_keeper
  # Killing the server before the new keeper is full would lose both at once, which nothing survives.
  await 10 keeper_holds || return 1
  keeper_kills=$((keeper_kills + 1))
}

unmap() {
  local number=${device#/dev/loop}
  end_process "$server_pid" USR1
  grep -q '^unmapped' "$folder/server.log" || { cat "$folder/server.log"; return 1; }
  collect_resent
  server_pid=''
  [ ! -e "/sys/block/loop$number/loop" ] || { echo "mount_kill: $device is still bound"; return 1; }
  rm -f "$folder/$name.data"
}

cleanup() {
  trap - EXIT
  touch "$folder/stop"
  kill "$watchdog_pid" 2>/dev/null
  for held in $("$control" "$folder/keeper.sock" list 2>/dev/null | awk '$2 == "fuse" {print $1}'); do
    "$control" "$folder/keeper.sock" fail "$held"
  done
  [ -z "$server_pid" ] || end_process "$server_pid" KILL
  [ -z "$keeper_pid" ] || end_process "$keeper_pid" KILL
  [ -z "$fio_pid" ] || wait "$fio_pid"
  mountpoint -q "$folder/mnt" && timeout 20 umount "$folder/mnt"
  timeout 20 "$loop" sweep sarsen:mount-kill >/dev/null
  mountpoint -q "$folder/mnt" && { echo "mount_kill: $folder/mnt is still mounted"; return; }
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
trap 'echo "mount_kill: out of time; I/O that never ends is an error, too"; echo "$passed passed, 1 failed"; exit 1' USR1

write_files() {
  head -c 20000000 /dev/urandom >"$folder/mnt/large"
  for i in $(seq 200); do echo "file $i of $name" >"$folder/mnt/small.$i"; done
  (cd "$folder/mnt" && md5sum large small.*) >"$folder/sums"
}

# While fio runs: kills at random moments with requests in flight, file system work in between.
kill_under_load() {
  local i keeper_every=$((kills_per_run / keeper_kills_per_run))
  for i in $(seq "$kills_per_run"); do
    sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
    await 10 in_flight || return 1
    kill_server || return 1
    echo "after kill $i" >"$folder/mnt/note.$i"
    if [ $((i % keeper_every)) = 0 ]; then
      sleep "0.1$((RANDOM % 10))"
      kill_keeper || return 1
    fi
  done
  replace_server
}

# file_system TYPE SECTOR_BYTES
file_system() {
  name=mount-kill-$1-$2
  start_server --size $((320 << 20)) --sector "$2" || return 1
  [ "$(blockdev --getss "$device")" = "$2" ] || { echo "sector size"; return 1; }
  [ "$(cat "/sys/block/${device#/dev/}/loop/dio")" = 1 ] || { echo "no direct I/O"; return 1; }
  make_file_system "$1" && mount -o discard "$device" "$folder/mnt" && write_files || return 1
  start_fio 40
  kill_under_load && stop_fio || return 1
  rm "$folder/mnt"/verify.* && sync && timeout 30 fstrim "$folder/mnt" || return 1
  umount "$folder/mnt" && check_file_system "$1" && mount "$device" "$folder/mnt" || return 1
  (cd "$folder/mnt" && md5sum --quiet -c "$folder/sums") || return 1
  [ "$(cat "$folder/mnt/note.$kills_per_run")" = "after kill $kills_per_run" ] || return 1
  umount "$folder/mnt" && unmap || return 1
  # mkfs, the deleted files and fstrim: the data must have holes again, or discard does nothing.
  grep -q 'trims [1-9]' "$folder/server.log" || { echo "no trims"; cat "$folder/server.log"; return 1; }
}

# With xfs: growing a mounted ext4 needs CAP_SYS_RESOURCE, which containers rarely have.
online_resize() {
  name=mount-kill-resize
  start_server --size $((320 << 20)) || return 1
  make_file_system xfs && mount "$device" "$folder/mnt" || return 1
  kill -USR2 "$server_pid"
  await 10 grep -q '^resized' "$folder/server.log" || return 1
  [ "$(blockdev --getsize64 "$device")" = $((336 << 20)) ] || { echo "not grown"; return 1; }
  xfs_growfs "$folder/mnt" >"$folder/resize.log" 2>&1 || { cat "$folder/resize.log"; return 1; }
  write_files
  kill_server || return 1
  umount "$folder/mnt" && check_file_system xfs && unmap
}

# Killed between reading a request of its own helper and answering it, for each of the answers that making a device takes:
# the wait of the helper cannot be interrupted then. Nothing may be stuck, and nothing left but what the next server sweeps.
kill_while_mapping() {
  local answer=0 tracer swept
  name=mount-kill-map
  while :; do
    answer=$((answer + 1))
    : >"$folder/server.log"
    # Ends when server and helper have ended. A server that needs no further answer gets ready and lives.
    strace -f -qq -o "$folder/strace.log" -e trace=writev -e "inject=writev:signal=SIGKILL:when=$answer" \
      "$server" --folder "$folder" --loop "$loop" --name "$name" >"$folder/server.log" 2>&1 &
    tracer=$!
    await 20 mapping_ended $tracer 2>/dev/null || return 1
    if grep -q '^ready' "$folder/server.log"; then break; fi
    wait $tracer 2>/dev/null
    # 128 + SIGKILL. Anything else ended by itself; a build with LeakSanitizer does, under ptrace.
    [ $? = 137 ] || { cat "$folder/server.log"; return 1; }
    server_kills=$((server_kills + 1))
    ! keeper_holds || { echo "the keeper has a device that is not complete"; return 1; }
  done
  [ $answer -gt 3 ] || { echo "the server answered nothing"; return 1; }
  pkill -KILL -P $tracer
  wait $tracer 2>/dev/null
  start_server && timeout 20 dd if=/dev/urandom of="$device" bs=4096 count=100 oflag=direct status=none || return 1
  swept=$(timeout 20 "$loop" sweep sarsen:mount-kill "${device#/dev/loop}") || return 1
  echo "  (killed at each of $((answer - 1)) answers while mapping; $swept loop devices swept)"
  unmap
}

mapping_ended() { ! kill -0 "$1" 2>/dev/null || grep -q '^ready' "$folder/server.log"; }

fail_without_server() {
  local before waiting
  name=mount-kill-fail
  start_server --size $((64 << 20)) || return 1
  make_file_system ext4 && mount "$device" "$folder/mnt" && echo lost >"$folder/mnt/file" || return 1
  end_process "$server_pid" KILL
  server_pid=''
  umount "$folder/mnt" &
  waiting=$!
  sleep 0.3
  kill -0 $waiting 2>/dev/null || { echo "umount did not wait for the server"; return 1; }
  before=$(now_ms)
  "$control" "$folder/keeper.sock" fail "$name" || return 1
  wait $waiting
  echo "  (umount ended $(($(now_ms) - before)) ms after fail)"
  mountpoint -q "$folder/mnt" && { echo "still mounted"; return 1; }
  "$control" "$folder/keeper.sock" list | grep -q "^$name fuse failed$" || return 1
  # The next server finds it failed, and ends it.
  start_server && unmap && ! "$control" "$folder/keeper.sock" list | grep -q "$name"
}

step() {
  local before=$SECONDS
  if "$@"; then
    passed=$((passed + 1))
    printf 'mount_kill %-28s ok     %3d s\n' "$*" $((SECONDS - before))
  else
    failed=$((failed + 1))
    printf 'mount_kill %-28s FAILED %3d s\n' "$*" $((SECONDS - before))
    tail -5 "$folder/server.log" "$folder/keeper.log" 2>/dev/null
    echo "$passed passed, $failed failed"
    exit 1
  fi
}

(
  sleep "$seconds_max" &
  trap 'kill $!' TERM
  wait $! && kill -USR1 $$
) &
watchdog_pid=$!
start_keeper
await 5 test -S "$folder/keeper.sock" || exit 1
step file_system ext4 4096
step file_system ext4 512
step file_system xfs 4096
step file_system xfs 512
step online_resize
step kill_while_mapping
step fail_without_server
resent=$(awk '{sum += $1} END {print sum + 0}' "$folder/resent")
[ "$resent" -gt 0 ] || { failed=1; echo "mount_kill: no request was ever sent again"; }
sort -n "$pauses" >"$pauses.sorted"
count=$(wc -l <"$pauses.sorted")
echo "fio wrote and verified 40 MiB $(wc -l <"$folder/fio_runs") times without an error"
echo "server killed $server_kills times, keeper $keeper_kills times; requests sent again: $resent"
echo "pause in ms, with the start of the next server: median $(sed -n "$(((count + 1) / 2))p" "$pauses.sorted"), longest $(tail -1 "$pauses.sorted")"
echo "took $((SECONDS - start_seconds)) s"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
