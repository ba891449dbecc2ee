# shellcheck shell=bash
# expect.sh: sourced by tests of commands. Counts in $passed and $failed; a command's output is in $folder/out.

# expect NAME CODE PATTERN COMMAND...: the exit status, and what the output says.
expect() {
  local name=$1 code=$2 pattern=$3 got
  shift 3
  timeout 50 "$@" >"$folder/out" 2>&1
  got=$?
  if [ $got = "$code" ] && grep -Eq -- "$pattern" "$folder/out"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name: exit status $got (expected $code), expected /$pattern/ in:"
    sed 's/^/    /' "$folder/out"
  fi
}

# check NAME COMMAND...: it succeeds.
check() {
  local name=$1
  shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; fi
}
