# shellcheck shell=bash
# file_system_load.sh: sourced by tests that kill servers under a file system. Uses $device, $mnt and $folder; sets fio_pid.
#
#   make_file_system TYPE, check_file_system TYPE    ext4 or xfs, on $device
#   start_fio MIB, stop_fio                          writes and verifies MIB again and again; stop_fio fails when a run did
#   in_flight                                        the device has requests that are not answered

make_file_system() {
  case $1 in
    ext4) mkfs.ext4 -q -F "$device" ;;
    xfs) mkfs.xfs -q -f "$device" ;;
  esac
}

check_file_system() {
  case $1 in
    ext4) e2fsck -fn "$device" >"$folder/fsck.log" 2>&1 ;;
    xfs) xfs_repair -n "$device" >"$folder/fsck.log" 2>&1 ;;
  esac || { cat "$folder/fsck.log"; return 1; }
}

# Writes at random, with a backlog that is read back and verified meanwhile, and all of it at the end; again and again
# until told to stop. A run that does not get an error ends with status 0.
fio_loop() {
  while [ ! -e "$folder/stop" ]; do
    fio --name=verify --directory="$mnt" --size="$1m" --rw=randwrite --bsrange=4k-128k --ioengine=libaio --iodepth=16 --direct=1 \
      --verify=crc32c --verify_fatal=1 --verify_backlog=128 --verify_state_save=0 --output="$folder/fio.log" || return 1
    echo >>"$folder/fio_runs"
  done
}

start_fio() {
  rm -f "$folder/stop"
  fio_loop "$1" &
  fio_pid=$!
}

stop_fio() {
  touch "$folder/stop"
  wait "$fio_pid" || { cat "$folder/fio.log"; return 1; }
  fio_pid=''
}

in_flight() { grep -q '[1-9]' "/sys/block/${device#/dev/}/inflight"; }
