#!/usr/bin/env python3
"""Layers and the seam to the world.

Includes      In dataplane/, a folder includes itself and folders to its left in LAYERS. Nobody in dataplane/ includes
              tests/, operator/ or csi/. Quoted includes start at the root of the tree; X.cc includes its X.h first,
              which is how X.h is known to compile alone (the rest of the headers: CMake target check_headers).
              What is in PROGRAMS_ONLY is included by programs alone.
The seam      PURE folders reach time, disk, network, chance and threads only through runtime/env.h, so that they run in
              the simulator. Both the headers that offer a way around it and the calls themselves are refused.
Repeatable    In PURE folders nothing may depend on the order of a hash table or on the value of a pointer: no iteration
              over unordered containers, no ordered container keyed by a pointer.
              `// order does not matter: REASON` on the line before allows one iteration.

What this does not see: a call hidden behind a macro or a library of a third party, and iteration through an iterator
that was kept. The simulator's double runs are there for those.
"""
import re
from collections import defaultdict

import tree

LAYERS = ["base", "runtime", "wire", "store", "placement", "membership", "replica", "client",
          "keeper", "blockd", "mon", "osd", "cli"]
PURE = ["wire", "store", "placement", "membership", "replica", "client"]
# Folders inside of PURE ones that are not, and who may include them: programs, which do not run in the simulator.
PROGRAMS = ["keeper", "blockd", "mon", "osd", "cli"]
# Folders of programs that are as pure.
PURE_FOLDERS = ["dataplane/mon/machine/"]
PROGRAMS_ONLY = ["dataplane/membership/rpc/", "dataplane/membership/proto/"]

# File -> what it may do and why. An entry here is a decision; keep it rare.
ALLOWED = {
    # RocksDB's header of that name: the file takes the date away from RocksDB.
    "dataplane/store/metadata/metadata_env.cc": ["system_clock"],
}

BANNED_HEADERS = {
    "chrono": "Clock", "thread": "BlockingPool", "random": "Random, or base/rng.h from a seed",
    "fstream": "Disk", "filesystem": "Disk", "future": "Task", "ctime": "Clock", "time.h": "Clock",
    "fcntl.h": "Disk", "unistd.h": "Disk, Network", "poll.h": "Network", "netdb.h": "Network", "liburing.h": "Env",
    "pthread.h": "BlockingPool",
}
BANNED_HEADER_PREFIXES = {"sys/": "Env", "netinet/": "Network", "arpa/": "Network", "linux/": "Env"}

SYSTEM_CALLS = ("open openat creat close read write pread pwrite readv writev preadv pwritev preadv2 pwritev2 fsync "
                "fdatasync sync_file_range fallocate ftruncate ioctl mmap socket connect accept accept4 bind listen "
                "send recv sendmsg recvmsg sendto recvfrom poll epoll_wait fork execv execve kill usleep nanosleep "
                "sleep time gettimeofday clock_gettime getrandom rand srand random syscall").split()

BANNED = [
    (r"\b(steady_clock|system_clock|high_resolution_clock)\b", "time comes from Clock"),
    (r"\b(clock_gettime|gettimeofday|clock_nanosleep|nanosleep|usleep)\s*\(", "time comes from Clock"),
    (r"\bstd::time\s*\(", "time comes from Clock"),
    (r"\brandom_device\b|\bmt19937|\bdefault_random_engine\b", "chance comes from Random, or base/rng.h from a seed"),
    (r"(?<![\w.>:])s?rand(om)?\s*\(|\bgetrandom\s*\(", "chance comes from Random"),
    (r"\bstd::j?thread\b|\bstd::async\b|\bthis_thread\b|\bpthread_", "threads belong to runtime: use BlockingPool"),
    (r"\bthread_local\b", "state belongs to an object that a shard owns"),
    (r"(?<![\w.>:])getenv\s*\(|\bstd::getenv\b", "configuration is handed down from main()"),
    (r"(?<![\w>:])::(" + "|".join(SYSTEM_CALLS) + r")\s*\(", "system calls belong to runtime: use Env"),
    (r"\bstd::(map|set|multimap|multiset|less)\s*<\s*(const\s+)?[\w:]+\s*\*",
     "the order of pointers differs between runs"),
]
BANNED = [(re.compile(pattern), why) for pattern, why in BANNED]

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]', re.M)
HASHED = re.compile(r"\b(?:std::unordered_\w+|absl::(?:flat|node)_hash_\w+)\s*<")
ORDER_COMMENT = "order does not matter:"


def declared_names(text):
    """Names of variables and members whose type is a hash table."""
    names = set()
    for match in HASHED.finditer(text):
        depth, at = 1, match.end()
        while at < len(text) and depth:
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            at += 1
        if name := re.match(r"\s*&?\s*(\w+)\s*(?:[;={,)]|ABSL_|$)", text[at:]):
            names.add(name[1])
    return names


def iteration_pattern(names):
    choice = "|".join(map(re.escape, sorted(names)))
    return re.compile(rf"for\s*\([^;()]*:\s*(?:this->|\w+[.])?({choice})\s*\)|\b({choice})(?:\.|->)c?begin\s*\(")


def check_includes(root, path, text, problems):
    layer = path.parts[1] if path.parts[0] == "dataplane" else None
    includes = [(match[1], match[2], text.count("\n", 0, match.start()) + 1) for match in INCLUDE.finditer(text)]
    for kind, name, line in includes:
        where = f"{path}:{line}"
        if kind == "<":
            if name.startswith(("dataplane/", "tests/")):
                problems.append(f'{where}: our own headers are included with quotes: "{name}"')
            continue
        top = name.split("/")[0]
        if top not in ("dataplane", "tests", "operator", "csi"):
            problems.append(f'{where}: "{name}": write the path from the root, as in "dataplane/runtime/env.h"')
            continue
        if ".pb." not in name and not (root / name).is_file():
            problems.append(f'{where}: "{name}" does not exist')
        if layer is None:
            continue
        if top != "dataplane":
            problems.append(f"{where}: dataplane/ must not include {top}/")
        elif (target := name.split("/")[1]) not in LAYERS:
            problems.append(f"{where}: dataplane/{target} is not in LAYERS of hack/check_layers.py")
        elif (name.startswith(tuple(PROGRAMS_ONLY)) and layer not in PROGRAMS
              and not str(path).startswith(tuple(PROGRAMS_ONLY))):
            problems.append(f'{where}: "{name}" is for programs only: it has threads and system calls')
        elif LAYERS.index(target) > LAYERS.index(layer):
            problems.append(f"{where}: {layer} must not include {target}, which is to its right in: {' '.join(LAYERS)}")
    own = path.with_suffix(".h")
    if path.suffix == ".cc" and (root / own).is_file() and (not includes or includes[0][1] != str(own)):
        problems.append(f'{path}: includes "{own}" first, so that the header is known to compile alone')
    if path.suffix == ".h" and "#pragma once" not in text:
        problems.append(f"{path}: no #pragma once")


def check_seam(path, text, code, hashed, problems):
    allowed = ALLOWED.get(str(path), [])
    for match in INCLUDE.finditer(text):
        name, line = match[2], text.count("\n", 0, match.start()) + 1
        instead = BANNED_HEADERS.get(name) or next(
            (use for prefix, use in BANNED_HEADER_PREFIXES.items() if name.startswith(prefix)), None)
        if match[1] == "<" and instead and name not in allowed:
            problems.append(f"{path}:{line}: <{name}> goes around runtime/env.h; use {instead}")
    originals = text.splitlines()
    patterns = list(BANNED)
    if hashed:
        patterns.append((iteration_pattern(hashed), "the order of a hash table differs between runs"))
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, why in patterns:
            if (match := pattern.search(line)) and match[0].strip() not in allowed:
                if "hash table" in why and ORDER_COMMENT in "".join(originals[max(0, number - 2):number]):
                    continue
                problems.append(f"{path}:{number}: `{match[0].strip()}`: {why}")


def main():
    root = tree.root_from_arguments()
    problems = []
    paths = [path for path in tree.files(root, *tree.CPP, under=("dataplane", "tests"))]
    texts = {path: (root / path).read_text(encoding="utf-8") for path in paths}
    hashed = defaultdict(set)
    for path, text in texts.items():
        hashed[path.parent] |= declared_names(tree.scrub(text))
    for path, text in texts.items():
        if path.parts[0] == "dataplane" and path.parts[1] not in LAYERS:
            problems.append(f"{path}: folder dataplane/{path.parts[1]} is not in LAYERS of hack/check_layers.py")
            continue
        check_includes(root, path, text, problems)
        pure = path.parts[0] == "dataplane" and path.parts[1] in PURE or str(path).startswith(tuple(PURE_FOLDERS))
        if pure and not str(path).startswith(tuple(PROGRAMS_ONLY)):
            check_seam(path, text, tree.scrub(text), hashed[path.parent], problems)
    tree.finish("layers", problems, len(paths))


if __name__ == "__main__":
    main()
