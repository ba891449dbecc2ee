#!/bin/bash
# quickstart.sh [PRESET]: hack/quickstart as a user has it: up, up again, up after parts were killed with -9, down; down from states
# that an interrupted up leaves. Nothing may stay behind. Needs root, FUSE and loop devices. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
preset=${1:-dev}
if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ] || [ ! -c /dev/loop-control ]; then
  echo "quickstart: needs root, FUSE and loop devices"
  exit 77
fi
dir=$(mktemp -d /tmp/quickstart_test.XXXXXX)
work=$dir/cluster
passed=0 failed=0

up() { timeout 120 hack/quickstart --dir "$work" --preset "$preset" --no-install --device-size 2G --image-size 512M >"$dir/out" 2>&1; }
down() { timeout 100 hack/quickstart --dir "$work" --down >>"$dir/out" 2>&1; }
finish() {
  [ ! -e "$work" ] || down || cat "$dir/out"
  rm -rf "$dir"
}
trap finish EXIT

pid_of() { cut -d' ' -f1 "$work/run/$1.pid"; }
# Ends NAME... at once, as a crash does.
kill_parts() {
  local name
  for name in "$@"; do kill -KILL "$(pid_of "$name")"; done
}
nothing_is_left() {
  [ ! -e "$work" ] && ! grep -q "$work" /proc/mounts && ! pgrep -f "$work/bin" >"$dir/left" &&
    ! losetup -l -n -O BACK-FILE | grep -q '@quickstart$'
}

check() {
  local before=$SECONDS
  if "$2"; then
    passed=$((passed + 1))
    echo "ok      $1 ($((SECONDS - before)) s)"
  else
    failed=$((failed + 1))
    echo "FAILED  $1"
    sed 's/^/        /' "$dir/out" | tail -n 25
  fi
}

comes_up() { up && grep -q 'verified  *64 MiB' "$dir/out" && grep -q HEALTH_OK "$dir/out" && grep -q 'IOPS' "$dir/out"; }
comes_up_again() {
  local before
  before=$(cat "$work"/run/*.pid) && comes_up && [ "$before" = "$(cat "$work"/run/*.pid)" ]
}
heals() { kill_parts osd mon && comes_up && kill_parts blockd && comes_up && kill_parts keeper && comes_up; }
# Nothing survives this; the next up makes a new device of the same image.
heals_both() { kill_parts keeper blockd && comes_up; }
goes() { down && nothing_is_left; }
goes_without_server() { comes_up && kill_parts blockd osd && down && nothing_is_left; }
goes_without_anybody() { comes_up && kill_parts blockd keeper osd mon && down && nothing_is_left; }
# Killed at some moment between its first and its last step.
goes_half_made() {
  local delay
  for delay in 0.3 1.5 2.5; do
    (timeout -s KILL $delay hack/quickstart --dir "$work" --preset "$preset" --no-install >"$dir/out" 2>&1) 2>/dev/null
    down && nothing_is_left || return 1
  done
}
touches_nothing_else() {
  mkdir "$work" && touch "$work/precious"
  ! up && ! down && [ -e "$work/precious" ] && rm -r "$work"
}

check "it comes up, with data verified, health and a bench line" comes_up
check "a second run starts nothing and verifies again" comes_up_again
check "what was killed is started again, and data are there" heals
check "after keeper and blockd were killed together, the image is mapped anew" heals_both
check "down removes everything" goes
check "down works when blockd and OSD were killed" goes_without_server
check "down works when everything was killed" goes_without_anybody
check "down works after an up that was killed" goes_half_made
check "a folder of somebody else is not touched" touches_nothing_else
echo "$passed passed, $failed failed"
[ $failed = 0 ]
