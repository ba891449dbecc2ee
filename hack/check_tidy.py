#!/usr/bin/env python3
"""clang-tidy with the fatal list of .clang-tidy over every file that the dev preset compiles.

A file that was fine is not looked at again until it, a header of ours that it includes (at any depth), its flags,
.clang-tidy or clang-tidy itself changes: the digest of all that is kept in build/tidy/.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRESET = ROOT / "build" / "dev"
FINE = ROOT / "build" / "tidy"
OURS = ("dataplane", "operator", "csi", "tests")
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)

contents = {}


def read(path):
    if path not in contents:
        data = path.read_bytes() if path.is_file() else b""
        contents[path] = (data, [ROOT / name.decode() for name in INCLUDE.findall(data)])
    return contents[path]


def closure(path):
    """The file and every header of ours below it, in a stable order."""
    seen, queue = {path}, [path]
    while queue:
        for header in read(queue.pop())[1]:
            if header not in seen:
                seen.add(header)
                queue.append(header)
    return sorted(seen)


def digest(entry, common):
    state = hashlib.sha256(common)
    state.update(re.sub(r" -o \S+", "", entry["command"]).replace(str(ROOT), "").encode())
    for path in closure(Path(entry["file"])):
        state.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(read(path)[0]).digest())
    return state.hexdigest()


def main():
    database = PRESET / "compile_commands.json"
    if not database.is_file():
        sys.exit("tidy: build/dev is not configured; run hack/build dev")
    version = subprocess.run(["clang-tidy-19", "--version"], capture_output=True, check=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes()
    pending = {}
    entries = [entry for entry in json.loads(database.read_text(encoding="utf-8"))
               if Path(entry["file"]).is_relative_to(ROOT)
               and Path(entry["file"]).relative_to(ROOT).parts[0] in OURS and Path(entry["file"]).is_file()]
    if not entries:
        sys.exit("tidy: no file of ours in build/dev/compile_commands.json")
    FINE.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        key = digest(entry, common)
        if not (FINE / key).exists():
            pending[entry["file"]] = key

    def look_at(item):
        file, key = item
        done = subprocess.run(["clang-tidy-19", "-p", str(PRESET), "--quiet", file], cwd=ROOT, capture_output=True,
                              text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            (FINE / key).touch()
            return ""
        return (done.stdout + done.stderr).strip() or f"{file}: clang-tidy ended with {done.returncode}"

    found = set()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for output in pool.map(look_at, sorted(pending.items())):
            if output and output not in found:
                found.add(output)
                print(output.replace(str(ROOT) + "/", ""), flush=True)
    print(f"tidy: {len(entries)} files, {len(pending)} looked at, {len(found)} with findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
