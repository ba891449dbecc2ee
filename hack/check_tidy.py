#!/usr/bin/env python3
"""clang-tidy with the fatal list of .clang-tidy over every file that the dev preset compiles.

A file that was fine is not looked at again until it, a header of ours that it includes (at any depth), its flags,
a .clang-tidy or clang-tidy itself changes: the digest of all that is kept in build/tidy/.

Two kinds of finding are dropped here:
- a product of constants (`10 * kBlockBytes`, `32 * 1024`) that is widened after it was computed: the compiler refuses
  such a product when it overflows, only products of variables overflow unseen;
- a coroutine parameter that refers to an object of a type in OUTLIVES below, which lives longer than every coroutine
  that is given it.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree

ROOT = Path(__file__).resolve().parent.parent
PRESET = ROOT / "build" / "dev"
FINE = ROOT / "build" / "tidy"
OURS = ("dataplane", "operator", "csi", "tests")
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)

FINDING = re.compile(r"^(\S+?):(\d+):(\d+): error: .*\[(.*?)(?:,-warnings-as-errors)?\]$")
WIDENING = "bugprone-implicit-widening-of-multiplication-result"
CONSTANTS = re.compile(r"(?:\d[\w']*|k[A-Z]\w*|[a-z_]\w*::(?=k[A-Z])|[\s*()])+")

REFERENCE = "cppcoreguidelines-avoid-reference-coroutine-parameters"
OUTLIVES = {
    "Env Disk BlockingDisk Clock Network Random Executor BufferPool CrossShard BlockingPool FaultPoints":
        "the seam: main() or the simulator makes it first and ends it last (runtime/env.h)",
    "MapSource": "beside the seam: made before the sessions and services that follow it (membership/map_source.h)",
    "StoreState StoreRead Lane": "parts of an open store, which joins its coroutines before it ends (store/store.h)",
}
LIVES_LONGER = re.compile(r"(const )?(sarsen::)?(" + "|".join(" ".join(OUTLIVES).split()) + ") ?&")

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


def text_at(file, line, column):
    lines = read(ROOT / file)[0].decode(errors="replace").splitlines()
    return lines[line - 1][column - 1:] + "\n" + "\n".join(lines[line:line + 2])


def is_product_of_constants(text):
    """True when the text starts with only literals, kNames and multiplications up to another operator."""
    matched = CONSTANTS.match(text)
    if not matched or "*" not in matched[0] or matched[0].rstrip().endswith("*"):
        return False
    closed = matched[0].count("(") <= matched[0].count(")")
    return closed and (matched[0].rstrip().endswith(")") or bool(re.match(r"[^\w.]", text[matched.end():])))


def is_dropped(check, file, line, column):
    if check == WIDENING:
        return is_product_of_constants(text_at(file, line, column))
    if check == REFERENCE:
        return bool(LIVES_LONGER.match(text_at(file, line, column)))
    return False


def findings(output):
    """clang-tidy's findings with their notes, without those that are dropped (see above)."""
    blocks, keep = [], False
    for line in output.splitlines():
        if match := FINDING.match(line):
            keep = not is_dropped(match[4], match[1], int(match[2]), int(match[3]))
            if keep:
                blocks.append([])
        elif re.search(r": (error|warning): ", line):
            keep = True
            blocks.append([])
        elif line.endswith(" generated.") or line.startswith("Suppressed "):
            continue
        if keep:
            blocks[-1].append(line)
    return ["\n".join(block) for block in blocks]


def main():
    database = PRESET / "compile_commands.json"
    if not database.is_file():
        sys.exit("tidy: build/dev is not configured; run hack/build dev")
    version = subprocess.run(["clang-tidy-19", "--version"], capture_output=True, check=True).stdout
    common = version + b"".join((ROOT / path).read_bytes() for path in tree.files(ROOT, ".clang-tidy"))
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
        found = findings(done.stdout + done.stderr)
        crashed = done.returncode not in (0, 1)
        if not found and not crashed:
            (FINE / key).touch()
        return found + ([f"{file}: clang-tidy ended with {done.returncode}: {done.stderr}"] if crashed else [])

    found = set()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for output in pool.map(look_at, sorted(pending.items())):
            for finding in output:
                if finding not in found:
                    found.add(finding)
                    print(finding.replace(str(ROOT) + "/", ""), flush=True)
    print(f"tidy: {len(entries)} files, {len(pending)} looked at, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
