#!/bin/bash
# device_tools.sh [BUILD]: what `sarsen device format` refuses, what inspect and fsck find, and that neither of them
# changes a byte. Needs root for the loop device. The last line is "N passed, N failed".
set -uo pipefail
build=$(realpath "${1:-build/dev}")
sarsen=$build/dataplane/cli/sarsen
writer=$build/tests/process/store_writer
# shellcheck source=tests/process/expect.sh
. "$(dirname "$(realpath "$0")")/expect.sh"

[ "$(id -u)" = 0 ] || { echo "device_tools: needs root"; exit 77; }
for tool in mkfs.ext4 mkfs.xfs mkswap sfdisk losetup python3; do
  command -v $tool >/dev/null || { echo "device_tools: needs $tool"; exit 77; }
done
folder=$(mktemp -d /var/tmp/device_tools.XXXXXX)
mkdir "$folder/mnt"
image=$folder/image loop='' swap_on='' passed=0 failed=0

clean_up() {
  [ -z "$swap_on" ] || swapoff "$swap_on" 2>/dev/null
  ! mountpoint -q "$folder/mnt" || umount "$folder/mnt"
  [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null
  rm -rf "$folder"
}
trap clean_up EXIT

# refused NAME PATTERN [OPTION...]: format refuses the image and leaves every byte.
refused() {
  local name=$1 pattern=$2 before
  shift 2
  before=$(cksum <"$image")
  expect "$name" 1 "$pattern" "$sarsen" device format "$image" "$@"
  check "$name: untouched" [ "$before" = "$(cksum <"$image")" ]
}

blank() { rm -f "$image"; truncate -s "${1:-64M}" "$image"; }
# shellcheck disable=SC2059  # the bytes are written as escapes of a format
bytes_at() { printf "$2" | dd of="$image" bs=1 seek="$1" conv=notrunc status=none; }
id_of() { "$sarsen" device inspect "$image" superblock -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)["superblock"]["device_id"])'; }
new_store() { rm -f "$image"; "$sarsen" device format "$image" --create --size 64M >/dev/null; }

# --- what is not ours is never overwritten, whatever options are given
nobody=00000000-0000-4000-8000-000000000000
blank; mkfs.ext4 -q -F "$image"; refused "ext4" "ext4 file system"
refused "ext4 with --destroy" "ext4 file system" --destroy --confirm $nobody
blank 320M; mkfs.xfs -q "$image"; refused "xfs" "xfs file system"
blank; mkswap "$image" >/dev/null 2>&1; refused "swap" "swap"
blank; echo ',,L' | sfdisk -q "$image"; refused "mbr" "dos partition table"
blank; printf 'label: gpt\n,,L\n' | sfdisk -q "$image"; refused "gpt" "gpt partition table"
dd if=/dev/zero of="$image" bs=1M count=1 conv=notrunc status=none
refused "gpt whose first copy is gone" "gpt partition table"
blank; bytes_at 512 'LABELONE\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0 \0\0\0LVM2 001'; refused "lvm" "LVM2_member|data at byte 512"
blank; bytes_at 0 'LUKS\272\276\0\2'; refused "luks" "LUKS|data at byte 0"
blank; bytes_at 40000000 'a thesis'; refused "data without a signature" "not empty: it has data at byte 40"
blank; bytes_at 67108860 'end'; refused "data in the last block" "not empty"
blank; ln "$image" "$folder/second"; refused "hard link" "hard links"; rm "$folder/second"
blank; refused "a blank file is not the store that --confirm names" "holds no Sarsen store" --destroy --confirm $nobody

# --- who uses it
expect "a folder" 2 "neither a block device nor" "$sarsen" device format "$folder"
expect "a missing name" 2 "--create --size" "$sarsen" device format "$folder/missing"
expect "a typing error in /dev" 1 "does not make files in /dev" "$sarsen" device format /dev/nvmeXn1 --create --size 64M
check "nothing made in /dev" [ ! -e /dev/nvmeXn1 ]
blank
if loop=$(losetup -f --show "$image" 2>/dev/null); then
  refused "the file behind a loop device" "is the file behind $loop"
  mkfs.ext4 -q -F "$loop"
  mount "$loop" "$folder/mnt"
  expect "a mounted device" 1 "is mounted on $folder/mnt" "$sarsen" device format "$loop"
  expect "fsck of a mounted device" 2 "in use" "$sarsen" device fsck "$loop"
  umount "$folder/mnt"
  expect "an unmounted one" 1 "ext4 file system" "$sarsen" device format "$loop"
  mkswap -f "$loop" >/dev/null 2>&1
  if swapon "$loop" 2>/dev/null; then
    swap_on=$loop
    expect "swap in use" 1 "swap space in use" "$sarsen" device format "$loop"
    swapoff "$loop"; swap_on=''
  else
    echo "device_tools: no swapon here; swap in use was not tried"
  fi
  dd if=/dev/zero of="$loop" bs=1M count=64 status=none
  expect "a blank block device" 0 "device id" "$sarsen" device format "$loop"
  expect "its fsck" 0 "verdict +clean" "$sarsen" device fsck "$loop"
  losetup -d "$loop"; loop=''
else
  loop=''
  echo "device_tools: no loop devices here; mounts were not tried"
fi

# --- files for tests
new_store
refused "--create over a file" "exists already" --create --size 64M
expect "too small" 2 "Nothing was created" "$sarsen" device format "$folder/small" --create --size 1M
check "nothing left behind" [ ! -e "$folder/small" ]
expect "--create without --size" 2 "requires" "$sarsen" device format "$folder/small" --create
expect "--destroy without --confirm" 2 "requires" "$sarsen" device format "$image" --destroy
expect "dry run creates nothing" 0 "would be created" "$sarsen" device format "$folder/small" --create --size 64M -n
check "nothing created" [ ! -e "$folder/small" ]

# --- an existing store
id=$(id_of)
refused "an existing store" "holds a Sarsen store, device id $id"
refused "another id" "but --confirm says" --destroy --confirm $nobody
refused "a part of the id" "but --confirm says" --destroy --confirm "${id:0:8}"
before=$(cksum <"$image")
expect "dry run" 0 "the Sarsen store $id" "$sarsen" device format "$image" --destroy --confirm "$id" -n
check "dry run: untouched" [ "$before" = "$(cksum <"$image")" ]
expect "with its id" 0 "destroys +the Sarsen store $id" "$sarsen" device format "$image" --destroy --confirm "$id"
check "a new id" [ "$id" != "$(id_of)" ]
bytes_at 100 'x'; bytes_at 65636 'x'; bytes_at 66977892 'x'; bytes_at 67043428 'x'
refused "a store without a valid superblock" "whose id cannot be read"
expect "inspect of it" 1 "damaged|checksum|quorum" "$sarsen" device inspect "$image"
expect "fsck of it" 1 "superblock" "$sarsen" device fsck "$image"
for copy in 0 65536 66977792 67043328; do dd if=/dev/zero of="$image" bs=4096 seek=$((copy / 4096)) count=1 conv=notrunc status=none; done
expect "an interrupted format is no store" 2 "holds no Sarsen store" "$sarsen" device fsck "$image"
expect "an interrupted format is done again" 0 "interrupted" "$sarsen" device format "$image"

# --- inspect and fsck: on a store after a crash, and after a clean stop; the device stays as it is
blocks=600
for end in journal home; do
  new_store
  "$writer" "$image" $blocks $end || { failed=$((failed + 1)); echo "FAILED: the writer ($end)"; }
  before=$(cksum <"$image")
  expect "inspect, data in $end" 0 "live" "$sarsen" device inspect "$image"
  expect "inspect as json, data in $end" 0 '"journal"' "$sarsen" device inspect "$image" -o json
  check "it is json" python3 -m json.tool "$folder/out" /dev/null
  expect "inspect of an object, data in $end" 0 "1/7/0/3" "$sarsen" device inspect "$image" all --object 1/7/0/3
  expect "fsck, data in $end" 0 '"blocks_verified": 600' "$sarsen" device fsck "$image" -o json
  expect "fsck verdict, data in $end" 0 "verdict +clean" "$sarsen" device fsck "$image"
  check "inspect and fsck change nothing ($end)" [ "$before" = "$(cksum <"$image")" ]
done

# --- a daemon has it: neither format nor fsck; a look is allowed
hold() { python3 -c 'import fcntl, subprocess, sys
with open(sys.argv[1], "r+b") as held:
    fcntl.lockf(held, fcntl.LOCK_EX)
    sys.exit(subprocess.run(sys.argv[2:]).returncode)' "$image" "$@"; }
held_id=$(id_of)
export -f hold; export image
expect "format of a store in use" 1 "another process has this store open" bash -c "hold $sarsen device format $image --destroy --confirm $held_id"
expect "fsck of a store in use" 2 "in use" bash -c "hold $sarsen device fsck $image"
expect "inspect of a store in use" 0 "readable" bash -c "hold $sarsen device inspect $image"

# --- one rotten byte at home
at=$(grep -abo 'block 123' "$image" | tail -1 | cut -d: -f1)
bytes_at $((at + 2000)) '!'
before=$(cksum <"$image")
expect "fsck names the rotten block" 1 "pool 1 family 7 branch 0 object 3 block 3" "$sarsen" device fsck "$image"
check "it says one" grep -Eq 'blocks corrupt +1$' "$folder/out"
check "fsck repairs nothing" [ "$before" = "$(cksum <"$image")" ]
bytes_at 100 'x'
expect "fsck tells of a bad superblock copy" 1 "1 of 4 copies are bad" "$sarsen" device fsck "$image"

# --- strangers
blank; mkfs.ext4 -q -F "$image"
before=$(cksum <"$image")
expect "inspect of ext4" 1 "ext4 file system" "$sarsen" device inspect "$image"
expect "fsck of ext4" 2 "could not check" "$sarsen" device fsck "$image"
check "untouched" [ "$before" = "$(cksum <"$image")" ]
expect "a bad object name" 2 "POOL/FAMILY/BRANCH/NUMBER" "$sarsen" device inspect "$image" --object seven
expect "an unknown part" 2 "PART" "$sarsen" device inspect "$image" everything
expect "help has examples" 0 "Examples" "$sarsen" device format --help
expect "version" 0 "version" "$sarsen" version -o json

echo "$passed passed, $failed failed"
[ $failed = 0 ]
