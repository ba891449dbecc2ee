#!/bin/bash
# mon_kill.sh [BUILD]: what sarsen-mon acknowledged survives kill -9, and it starts only on what it should start on.
# KILLS=N kills it so often (default 12). The last line is "N passed, N failed".
set -uo pipefail
build=$(realpath "${1:-build/dev}")
sarsen=$build/dataplane/cli/sarsen
mon=$build/dataplane/mon/sarsen-mon
kills=${KILLS:-12}
# shellcheck source=tests/process/expect.sh
. "$(dirname "$(realpath "$0")")/expect.sh"

folder=$(mktemp -d /var/tmp/mon_kill.XXXXXX)
export SARSEN_MON=unix:$folder/run/mon.sock
data=$folder/mon acknowledged=$folder/acknowledged mon_pid='' writer_pid='' passed=0 failed=0

clean_up() {
  [ -z "$writer_pid" ] || kill "$writer_pid" 2>/dev/null
  [ -z "$mon_pid" ] || kill -9 "$mon_pid" 2>/dev/null
  wait
  rm -rf "$folder"
}
trap clean_up EXIT

start_mon() {
  "$mon" --data "$data" --listen "$SARSEN_MON" >>"$folder/log" 2>&1 &
  mon_pid=$!
  for _ in $(seq 400); do
    "$sarsen" health >"$folder/health" 2>&1
    [ $? = 2 ] || return 0
    kill -0 $mon_pid 2>/dev/null || break
    sleep 0.05
  done
  echo "the mon did not start:"; tail -5 "$folder/log"; return 1
}

# Creates images until it is ended; writes down those whose creation was acknowledged.
create_images() {
  local number=0
  while :; do
    number=$((number + 1))
    "$sarsen" image create "image-$number" --size 1M >/dev/null 2>&1 && echo "rbd/image-$number" >>"$acknowledged"
  done
}

names() { "$sarsen" image ls -o json | python3 -c 'import json,sys; [print(i["image"]) for i in json.load(sys.stdin)]' | sort; }
epoch() { "$sarsen" status -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)["map_epoch"])'; }
lost() { comm -23 <(sort "$acknowledged") <(names) | head; }
all_there() { local gone; gone=$(lost); [ -z "$gone" ] || { echo "lost: $gone"; false; }; }

# --- what it starts on
expect "no store" 1 "only by 'sarsen cluster create'" "$mon" --data "$data" --listen "$SARSEN_MON"
expect "create" 0 "placement groups +32" "$sarsen" cluster create --data "$data"
expect "create twice" 1 "new or empty folder" "$sarsen" cluster create --data "$data"
expect "tcp without --insecure" 1 "--insecure" "$mon" --data "$data" --listen tcp:127.0.0.1:0
expect "a bad address" 1 "expected unix:PATH" "$mon" --data "$data" --listen nonsense
expect "no mon" 2 "cannot be reached" "$sarsen" status
start_mon || exit 1
expect "a second mon on the data" 1 "another process has the map store open" "$mon" --data "$data" --listen "$SARSEN_MON-2"
expect "a second mon on the socket" 1 "another process listens" bash -c \
  "'$sarsen' cluster create --data '$folder/other' >/dev/null && '$mon' --data '$folder/other' --listen '$SARSEN_MON'"

# --- kill -9 at any moment
touch "$acknowledged"
create_images &
writer_pid=$!
before=0
for round in $(seq "$kills"); do
  sleep "0.$((RANDOM % 5 + 2))"
  kill -9 $mon_pid
  wait $mon_pid 2>/dev/null
  start_mon || exit 1
  check "round $round: every acknowledged image is there" all_there
  now=$(epoch)
  check "round $round: the map's epoch never goes back" [ "$now" -ge "$before" ]
  before=$now
done
kill $writer_pid
wait $writer_pid 2>/dev/null
writer_pid=''
count=$(wc -l <"$acknowledged")
check "images were created meanwhile" [ "$count" -gt "$kills" ]
echo "$count images acknowledged over $kills kills, map epoch $before"

# --- refusals of destructive verbs, and a removal that takes effect
expect "rm without --confirm" 1 "to confirm, add --confirm rbd/image-1" "$sarsen" image rm image-1
expect "rm" 0 "removed +yes" "$sarsen" image rm image-1 --confirm rbd/image-1
sed -i '/image-1$/d' "$acknowledged"
expect "detach of a stranger" 1 "is not attached to holder 7" "$sarsen" image detach image-2 --holder 7
expect "shrink without leave" 1 "must be allowed explicitly" "$sarsen" image resize image-2 --size 4096

# --- a clean end, and damage
kill $mon_pid
wait $mon_pid
check "SIGTERM ends it with status 0" [ $? = 0 ]
start_mon || exit 1
check "after a clean end every image is there" all_there
check "what was removed stays removed" [ -z "$(names | grep -x rbd/image-1)" ]
kill $mon_pid
wait $mon_pid
mon_pid=''
mv "$data/CURRENT" "$folder/CURRENT"
expect "a store without CURRENT" 1 "is damaged and was left as it is" "$mon" --data "$data" --listen "$SARSEN_MON"

echo "$passed passed, $failed failed"
[ $failed = 0 ]
