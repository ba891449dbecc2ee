#!/bin/bash
# nbd_clients.sh [BUILD]: other people's NBD clients, unmodified, against our server: libnbd's nbdinfo and nbdcopy, qemu-img,
# qemu-io, fio. No privileges, no network beyond loopback, under a minute. The last line is "N passed, N failed".
set -uo pipefail
build=$(realpath "${1:-build/dev}")
server=$build/tests/process/nbd_test_server
for tool in nbdinfo nbdcopy qemu-img qemu-io fio python3; do
  command -v $tool >/dev/null || { echo "nbd_clients: needs $tool"; exit 77; }
done
folder=$(mktemp -d /tmp/nbd_clients.XXXXXX)
server_pid='' passed=0 failed=0

finish() {
  [ -z "$server_pid" ] || { kill -9 "$server_pid" 2>/dev/null; wait "$server_pid" 2>/dev/null; }
  rm -rf "$folder"
}
trap finish EXIT

start_server() {
  : >"$folder/log"
  "$server" --unix "$folder/socket" --size $((64 << 20)) >>"$folder/log" 2>&1 &
  server_pid=$!
  for ((i = 0; i < 500; i++)); do
    grep -q '^ready' "$folder/log" && break
    kill -0 $server_pid 2>/dev/null || break
    sleep 0.02
  done
  grep -q '^ready' "$folder/log" || { cat "$folder/log"; echo "nbd_clients: the server did not start"; exit 1; }
  tcp=$(sed -n 's/^ready .* tcp:\(.*\)$/\1/p' "$folder/log")
}

# unix EXPORT, tcp EXPORT: the URI of an export.
unix() { echo "nbd+unix:///$1?socket=$folder/socket"; }
tcp() { echo "nbd://$tcp/$1"; }

# check SENTENCE FUNCTION: runs it and counts; its output is shown when it fails.
check() {
  local start=$SECONDS
  if ("$2") >"$folder/output" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $1 ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    echo "FAILED  $1"
    sed 's/^/        /' "$folder/output" | tail -20
  fi
}
run() { timeout 60 "$@"; }
refused() { ! run "$@"; }

lists_exports() {
  run nbdinfo --list --json "$(unix '')" >"$folder/list.json"
  python3 - "$folder/list.json" <<'PYTHON'
import json, sys
exports = {e["export-name"]: e for e in json.load(open(sys.argv[1]))["exports"]}
assert set(exports) == {"disk", "fixed", "sectors", "full"}, exports.keys()
disk = exports["disk"]
for flag in ("can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero", "can_df"):
    assert disk[flag], flag
assert not disk["is_rotational"] and not disk["is_read_only"] and exports["fixed"]["is_read_only"]
assert (disk["block_size_minimum"], disk["block_size_preferred"], disk["block_size_maximum"]) == (1, 4096, 32 << 20)
assert exports["sectors"]["block_size_minimum"] == 512
assert disk["contexts"] == ["base:allocation"] and disk["export-size"] == 64 << 20
PYTHON
}

copies_both_ways() {
  head -c $((48 << 20)) /dev/urandom >"$folder/in" && truncate -s $((64 << 20)) "$folder/in"
  run nbdcopy --connections=4 --requests=32 --flush "$folder/in" "$(unix disk)" &&
    run nbdcopy --connections=4 --requests=32 "$(unix disk)" "$folder/out" && cmp "$folder/in" "$folder/out" &&
    run nbdcopy --request-size=33554432 "$(tcp disk)" "$folder/out" && cmp "$folder/in" "$folder/out" &&
    run nbdcopy --request-size=33554432 "$folder/in" "$(tcp disk)" &&
    run nbdcopy "$(tcp disk)" "$folder/out" && cmp "$folder/in" "$folder/out"
}

maps_what_is_allocated() {
  run qemu-io -f raw -c 'discard 0 64M' -c 'write -P 7 8M 1M' -c 'write -z 20M 64k' "$(unix disk)" || return
  run nbdinfo --map "$(unix disk)" | awk '{print $1, $2, $3}' >"$folder/map"
  printf '%s\n' '0 8388608 3' '8388608 1048576 0' '9437184 11534336 3' '20971520 65536 0' '21037056 46071808 3' |
    diff - "$folder/map" && run qemu-img map -f raw --output=json "$(unix disk)" | grep -q '"start": 8388608, "length": 1048576'
}

converts_and_compares() {
  head -c $((20 << 20)) /dev/urandom >"$folder/raw" && truncate -s $((64 << 20)) "$folder/raw"
  run qemu-img convert -n -f raw -O raw "$folder/raw" "$(unix disk)" &&
    run qemu-img compare -f raw -F raw "$folder/raw" "$(unix disk)" &&
    run qemu-img convert -f raw -O qcow2 "$(tcp disk)" "$folder/qcow2" &&
    run qemu-img compare -f qcow2 -F raw "$folder/qcow2" "$(unix disk)" &&
    run qemu-img convert -n -W -m 16 -f qcow2 -O raw "$folder/qcow2" "$(tcp sectors)" &&
    run qemu-img compare -f raw -F raw "$(unix sectors)" "$folder/raw"
}

verifies_patterns() {
  run qemu-io -f raw -c 'write -P 1 0 64k' -c 'write -P 2 1000 3000' -c 'write -f -P 3 60k 8k' -c 'write -z -u 16k 16k' \
    -c 'discard 32k 4k' -c 'flush' -c 'read -P 1 0 1000' -c 'read -P 2 1000 3000' -c 'read -P 1 4000 12384' \
    -c 'read -P 0 16k 20k' -c 'read -P 1 36k 24k' -c 'read -P 3 60k 8k' -c 'aio_write -P 9 1M 3M' -c 'aio_flush' \
    -c 'read -P 9 1M 3M' "$(unix disk)" >"$folder/qemu-io" || return
  ! grep -E 'verification failed|error' "$folder/qemu-io"
}

refuses_changes_of_fixed() {
  run qemu-io -r -f raw -c 'read -P 0x5a 0 1M' "$(unix fixed)" && refused qemu-io -f raw -c 'write 0 4k' "$(unix fixed)" &&
    refused nbdcopy "$folder/raw" "$(unix fixed)"
}

says_no_space() {
  refused nbdcopy "$folder/raw" "$(unix full)" 2>&1 | grep 'No space left' &&
    refused qemu-io -f raw -c 'write 0 4k' "$(unix full)" 2>&1 | grep 'No space left'
}

refuses_unknown_exports() { refused nbdinfo "$(unix nothing)" 2>&1 | grep 'No such file or directory for export: nothing'; }

fio_on() {
  run fio --name=verify --ioengine=nbd --uri="$1" --rw="$2" --bsrange="$3" --iodepth=32 --size=48m --io_size=48m --offset=4k \
    --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randrepeat=0
}
verifies_small_random_writes() { fio_on "$(unix disk)" randwrite 4k-4k; }
verifies_mixed_sizes() { fio_on "$(tcp disk)" randwrite 4k-256k && fio_on "$(unix sectors)" write 512k-4m; }
verifies_trims() {
  run fio --name=trim --ioengine=nbd --uri="$(unix disk)" --rw=randtrim --bs=64k --iodepth=16 --size=32m &&
    run nbdinfo --map --totals "$(unix disk)"
}

survives_nonsense() {
  timeout 20 python3 -c '
import os, socket, sys
for cut in (0, 1, 18, 4000):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(3)
    try:
        s.sendall(os.urandom(cut)); s.recv(100)
    except OSError:
        pass
    s.close()' "$folder/socket" && run nbdinfo --size "$(unix disk)"
}

drains_when_told_to_stop() {
  timeout 30 fio --name=load --ioengine=nbd --uri="$(unix disk)" --rw=randwrite --bs=64k --iodepth=32 --size=48m --time_based \
    --runtime=20 >"$folder/fio" 2>&1 &
  local load=$!
  for ((i = 0; i < 300; i++)); do
    grep -q 'connected to NBD server' "$folder/fio" && break
    sleep 0.02
  done
  # Under load, not only connected: the server answers others while it works for this one.
  [ "$(run nbdinfo --size "$(unix disk)")" = $((64 << 20)) ] || return 1
  kill -TERM "$server_pid"
  timeout 15 tail --pid="$server_pid" -f /dev/null || { echo "the server did not end"; return 1; }
  timeout 10 tail --pid=$load -f /dev/null || { echo "the client hangs"; kill -9 $load; return 1; }
  grep '^connections' "$folder/log"
}

start_server
check "nbdinfo lists the exports and what they can do" lists_exports
check "nbdcopy copies both ways, several connections, requests up to 32 MiB" copies_both_ways
check "nbdinfo and qemu-img map what is allocated" maps_what_is_allocated
check "qemu-img converts and compares" converts_and_compares
check "qemu-io reads back patterns, zeroes and discards, also unaligned" verifies_patterns
check "a read-only export takes no changes" refuses_changes_of_fixed
check "a full pool is ENOSPC to clients" says_no_space
check "unknown exports are refused by name" refuses_unknown_exports
check "fio verifies 4 KiB random writes" verifies_small_random_writes
check "fio verifies mixed sizes and long writes" verifies_mixed_sizes
check "fio trims" verifies_trims
check "nonsense ends its own connection only" survives_nonsense
check "the server drains and ends when told to, under load" drains_when_told_to_stop
wait "$server_pid"
status=$?
server_pid=''
[ $status = 0 ] || { echo "FAILED  the server ended with status $status"; failed=$((failed + 1)); }
sed -n '/^connections/p' "$folder/log"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
