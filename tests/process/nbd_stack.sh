#!/bin/bash
# nbd_stack.sh [BUILD]: other people's NBD clients, unmodified, on images of a whole node: nbdinfo, nbdcopy, qemu-img, fio, and a virtual
# machine under QEMU that writes, goes through a kill -9 of blockd and of the OSD, boots again and checks. Needs no root but what the keeper
# and blockd need. About a minute; ends with "N passed, N failed".
set -uo pipefail
here=$(dirname "$(realpath "$0")")
if [ "$(id -u)" != 0 ]; then
  echo "nbd_stack: needs root"
  exit 77
fi
for tool in nbdinfo nbdcopy qemu-img qemu-system-x86_64 fio python3; do
  command -v $tool >/dev/null || { echo "nbd_stack: needs $tool"; exit 77; }
done
# shellcheck source=tests/process/cluster.sh
. "$here/cluster.sh"
# shellcheck source=tests/process/guest.sh
. "$here/guest.sh"
cluster_init "$(realpath "${1:-build/dev}")" "$(mktemp -d /tmp/nbd_stack.XXXXXX)"
passed=0 failed=0
cleanup() {
  cluster_stop
  rm -rf "$folder"
}
trap cleanup EXIT

# check SENTENCE FUNCTION: runs it and counts; its output is shown when it fails.
check() {
  local before=$SECONDS
  if "$2" >"$folder/output" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $1 ($((SECONDS - before)) s)"
  else
    failed=$((failed + 1))
    echo "FAILED  $1"
    sed 's/^/        /' "$folder/output" | tail -n 20
  fi
}
run() { timeout 60 "$@"; }
# export_of NAME SIZE: a new image as an export; sets uri.
export_of() {
  "$cli" image create "$1" --size "$2" >/dev/null && uri=$("$cli" image map "$1" --frontend nbd)
}

describes_itself() {
  export_of disk 64M && run nbdinfo --json "$uri" >"$folder/info" && python3 - "$folder/info" <<'PYTHON'
import json, sys
export = json.load(open(sys.argv[1]))["exports"][0]
assert export["export-size"] == 64 << 20 and export["export-name"] == "rbd/disk", export
assert export["block_size_preferred"] == 4096 and not export["is_read_only"], export
for flag in ("can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"):
    assert export[flag], flag
PYTHON
}
refuses_what_is_not_mapped() {
  "$cli" image create hidden --size 4M >/dev/null && ! run nbdinfo "nbd+unix:///rbd/hidden?socket=$folder/nbd.sock"
}
copies_both_ways() {
  head -c $((40 << 20)) /dev/urandom >"$folder/in" && truncate -s $((64 << 20)) "$folder/in" &&
    run nbdcopy --connections=4 --requests=32 --flush "$folder/in" "$uri" &&
    run nbdcopy --connections=4 --requests=32 "$uri" "$folder/out" && cmp "$folder/in" "$folder/out" && rm "$folder/out" &&
    # What was never written takes no space, and clients can see that.
    run nbdinfo --map --totals "$uri" | grep -q '^ *25165824 .*hole,zero'
}
converts_and_compares() {
  run qemu-img compare -f raw -F raw "$folder/in" "$uri" && run qemu-img convert -f raw -O qcow2 "$uri" "$folder/qcow2" &&
    export_of converted 64M && run qemu-img convert -n -W -m 8 -f qcow2 -O raw "$folder/qcow2" "$uri" &&
    run qemu-img compare -f raw -F raw "$folder/in" "$uri" && rm "$folder/qcow2" "$folder/in"
}
verifies_with_fio() {
  export_of verified 64M &&
    run fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bsrange=4k-256k --iodepth=32 --size=48m --verify=crc32c \
      --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randrepeat=0
}
serves_read_only() {
  local image=verified
  "$cli" image unmap $image && uri=$("$cli" image map $image --frontend nbd --read-only) &&
    run nbdinfo --json "$uri" | grep -q '"is_read_only": true' && ! run qemu-io -f raw -c 'write 0 4k' "$uri"
}

guest_wrote() { grep -q "GUEST-WROTE $1" "$folder/console.write"; }
# QEMU connects again and sends again what was not answered.
guest_survives() {
  local guest
  export_of guest 256M && guest_prepare "$folder" || return 1
  : >"$folder/console.write"
  guest_run "$folder" "$folder/nbd.sock" rbd/guest write &
  guest=$!
  await 60 guest_wrote 2 && kill_blockd && start_blockd && await 60 guest_wrote 5 && kill_osd && start_osd
  wait $guest && guest_run "$folder" "$folder/nbd.sock" rbd/guest check
}
ends_clean() {
  local image
  for image in disk converted verified guest; do "$cli" image unmap $image || return 1; done
  [ -z "$("$build/tests/process/keeper_control" "$SARSEN_KEEPER" list)" ] && "$cli" health
}

cluster_create "$folder/osd0.img" --create --size 2G && start_osd && start_keeper && start_blockd || exit 1
check "nbdinfo sees an image as an export" describes_itself
check "an image that is not mapped is not exported" refuses_what_is_not_mapped
check "nbdcopy copies both ways, and holes stay holes" copies_both_ways
check "qemu-img converts and compares" converts_and_compares
check "fio verifies random writes" verifies_with_fio
check "a read-only export takes no writes" serves_read_only
check "a virtual machine writes while blockd and OSD are killed, boots again and verifies" guest_survives
check "everything is unmapped and detached" ends_clean
echo "$passed passed, $failed failed"
[ $failed = 0 ]
