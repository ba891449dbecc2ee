# shellcheck shell=bash
# cluster.sh: sourced by tests that need a whole node: mon, OSD, keeper and blockd as processes, in a folder of their own.
#
#   cluster_init BUILD FOLDER         where programs are, where everything goes; sets cli's environment
#   cluster_create DEVICE [ARGUMENT…] a new cluster, its mon running, and a device for its OSD (arguments of `sarsen osd create`)
#   start_NAME, kill_NAME             NAME: mon, osd, keeper, blockd; starting returns when it serves
#   cluster_stop                      ends all of them, whatever state they are in
#
# Every wait is for a condition and bounded.

declare -A cluster_pid=()

cluster_init() {
  build=$1
  folder=$2
  cli=$build/dataplane/cli/sarsen
  export SARSEN_MON=unix:$folder/mon.sock SARSEN_BLOCKD=$folder/blockd.sock SARSEN_KEEPER=$folder/keeper.sock
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# await SECONDS COMMAND...: until it succeeds.
await() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $deadline ] || { echo "gave up waiting: $*"; return 1; }
    sleep 0.02
  done
}

# launch NAME COMMAND...: in the background, its output in FOLDER/NAME.log.
launch() {
  local name=$1
  shift
  echo "---- started $(date +%T.%3N)" >>"$folder/$name.log"
  "$@" >>"$folder/$name.log" 2>&1 &
  cluster_pid[$name]=$!
}

is_running() { kill -0 "${cluster_pid[$1]}" 2>/dev/null; }

# end NAME SIGNAL
end() {
  local pid=${cluster_pid[$1]:-}
  [ -n "$pid" ] || return 0
  kill "-$2" "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  cluster_pid[$1]=''
}

# ready NAME COMMAND...: COMMAND succeeds, or NAME has ended, which is an error.
ready() {
  local name=$1 deadline=$((SECONDS + 20))
  shift
  until "$@" >/dev/null 2>&1; do
    if ! is_running "$name" || [ $SECONDS -ge $deadline ]; then
      echo "$name does not get ready:"
      tail -n 20 "$folder/$name.log"
      return 1
    fi
    sleep 0.02
  done
}

cluster_create() {
  osd_device=$1
  "$cli" cluster create --data "$folder/mon" --group-bits 3 >"$folder/create.log" || return 1
  start_mon || return 1
  "$cli" osd create "$@" >>"$folder/create.log" || { cat "$folder/create.log"; return 1; }
}

start_mon() {
  launch mon "$build/dataplane/mon/sarsen-mon" --data "$folder/mon" --listen "$SARSEN_MON"
  ready mon "$cli" status
}
start_keeper() {
  launch keeper "$build/dataplane/keeper/sarsen-keeper" --socket "$SARSEN_KEEPER"
  ready keeper "$build/tests/process/keeper_control" "$SARSEN_KEEPER" list
}
osd_is_up() { "$cli" health; }
start_osd() {
  launch osd "$build/dataplane/osd/sarsen-osd" --mon "$SARSEN_MON" --device "$osd_device" --memory 64M \
    --listen "unix:$folder/osd.{osd}.sock"
  ready osd osd_serves
}
# The newest run says so itself: the mon does not notice a killed OSD at once.
osd_serves() { awk '/^---- started/ { said = 0 } /event=serving/ { said = 1 } END { exit !said }' "$folder/osd.log"; }
launch_blockd() {
  launch blockd "$build/dataplane/blockd/sarsen-blockd" --state-dir "$folder/node" --run-dir "$folder" \
    --loop-helper "$build/dataplane/blockd/fuse/sarsen-loop" --memory 128M
}
start_blockd() {
  launch_blockd
  ready blockd "$cli" image mapped
}
kill_mon() { end mon KILL; }
kill_osd() { end osd KILL; }
kill_keeper() { end keeper KILL; }
kill_blockd() { end blockd KILL; }

# The device of an image, as blockd reports it; a field of its report.
mapped_field() {
  "$cli" image mapped -o json | python3 -c '
import json, sys
print(next((str(d[sys.argv[2]]) for d in json.load(sys.stdin) if d["image"] == "rbd/" + sys.argv[1]), ""))' "$1" "$2"
}
image_is() { [ "$(mapped_field "$1" state)" = "$2" ]; }

# Devices without a server cannot be unmounted, so they are failed first, by the keeper or by closing everything.
cluster_stop() {
  local name held
  held=$("$build/tests/process/keeper_control" "$SARSEN_KEEPER" list 2>/dev/null | awk '$2 == "fuse" {print $1}')
  for name in $held; do "$build/tests/process/keeper_control" "$SARSEN_KEEPER" fail "$name" >/dev/null; done
  for name in blockd keeper osd mon; do end $name KILL; done
}
