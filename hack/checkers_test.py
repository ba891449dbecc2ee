#!/usr/bin/env python3
"""Each checker accepts a clean small tree and refuses it with one thing wrong.

A check that never fails proves nothing: every rule of a checker has a row here that it must turn red.
"""
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import check_tidy

HACK = Path(__file__).resolve().parent

CLEAN = {
    "dataplane/README.md": "[r](runtime/README.md) [s](store/README.md) [d](docs/README.md)\n",
    "dataplane/store/README.md": "| file | |\n|---|---|\n| `journal.{h,cc}` | the log |\n"
                                 "May include: all. Not here: x.\n",
    "dataplane/store/journal.h": '#pragma once\n#include <absl/container/flat_hash_map.h>\n\n'
                                 '#include "dataplane/runtime/env.h"\n// I-JOURNAL-1\n'
                                 'class Journal {\n  absl::flat_hash_map<int, int> slots_;\n};\n',
    "dataplane/store/journal.cc": '#include "dataplane/store/journal.h"\n\nint next(int n) { return n + 1; }\n',
    "dataplane/runtime/README.md": "`env.h` is the seam. See [the store](../store/README.md).\n"
                                   "It may include nothing; must not be here: formats.\n",
    "dataplane/runtime/env.h": "#pragma once\n",
    "dataplane/docs/README.md": "[list](invariants.md)\n",
    "dataplane/docs/invariants.md": "# Invariants\n| id | what | checked by |\n|---|---|---|\n"
                                    "| I-JOURNAL-1 | in order | journal_test |\n| I-JOURNAL-9 | later | planned |\n",
    "hack/README.md": "`build` builds.\n",
    "hack/build": "#!/bin/bash\n",
}
CC = "dataplane/store/journal.cc"
H = "dataplane/store/journal.h"


def with_line(line, path=CC):
    return {path: CLEAN[path] + line + "\n"}


def function_of(lines):
    return "int long_one() {\n" + "  next(1);\n" * (lines - 2) + "}\n"


# (checker, what is changed, words that the refusal has; None: it must still be accepted)
CASES = [
    # layers
    ("layers", {H: CLEAN[H] + '#include "dataplane/osd/main.h"\n'}, "does not exist"),
    ("layers", {H: CLEAN[H] + '#include "dataplane/osd/osd.h"\n', "dataplane/osd/osd.h": "#pragma once\n"},
     "store must not include osd"),
    ("layers", {"dataplane/runtime/env.h": '#pragma once\n#include "dataplane/store/journal.h"\n'},
     "runtime must not include store"),
    ("layers", {H: CLEAN[H] + '#include "tests/sim/world.h"\n', "tests/sim/world.h": "#pragma once\n"},
     "must not include tests/"),
    ("layers", {H: CLEAN[H].replace('"dataplane/runtime/env.h"', '"env.h"')}, "path from the root"),
    ("layers", {CC: '#include <cstdint>\n#include "dataplane/store/journal.h"\n'}, "first"),
    ("layers", {H: CLEAN[H].replace("#pragma once\n", "")}, "#pragma once"),
    ("layers", {"dataplane/utils/misc.h": "#pragma once\n"}, "not in LAYERS"),
    ("layers", with_line("#include <chrono>"), "use Clock"),
    ("layers", with_line("#include <sys/mman.h>"), "use Env"),
    ("layers", with_line("auto t = std::chrono::steady_clock::now();"), "time comes from Clock"),
    ("layers", with_line("int r = rand();"), "chance comes from Random"),
    ("layers", with_line("std::random_device device;"), "chance comes from Random"),
    ("layers", with_line("std::thread worker;"), "BlockingPool"),
    ("layers", with_line("auto n = ::pread(fd, data, size, 0);"), "use Env"),
    ("layers", with_line('auto home = std::getenv("HOME");'), "handed down"),
    ("layers", with_line("std::map<Journal*, int> by_address;"), "order of pointers"),
    ("layers", with_line("for (auto& slot : slots_) next(slot.first);"), "hash table"),
    ("layers", with_line("auto it = slots_.begin();"), "hash table"),
    ("layers", with_line("// order does not matter: a sum\nfor (auto& slot : slots_) next(slot.first);"), None),
    ("layers", with_line("// std::thread, rand() and steady_clock in a comment"), None),
    ("layers", with_line('const char* text = "::pread(";'), None),
    ("layers", with_line("disk.read(1); source->random(); auto n = Source::open(2); int brand = 3;"), None),
    ("layers", {"dataplane/runtime/clock.cc": "#include <chrono>\n"}, None),
    ("layers", {"dataplane/client/session.h": '#pragma once\n#include "dataplane/membership/rpc/mon_client.h"\n',
                "dataplane/membership/rpc/mon_client.h": "#pragma once\n"}, "for programs only"),
    ("layers", {"dataplane/osd/osd.h": '#pragma once\n#include "dataplane/membership/rpc/mon_client.h"\n',
                "dataplane/membership/rpc/mon_client.h": "#pragma once\n#include <thread>\n"}, None),
    ("layers", {"dataplane/mon/machine/rules.cc": "#include <chrono>\n"}, "use Clock"),
    # sizes
    ("sizes", with_line("// " + "x" * 98), "101 columns"),
    ("sizes", with_line("// \N{GREEK SMALL LETTER MU}" + "x" * 96), None),
    ("sizes", {CC: "int n;\n" * 801}, "801 lines"),
    ("sizes", {CC: "int n;\n" * 800}, None),
    ("sizes", {CC: function_of(101)}, "long_one has 101 lines"),
    ("sizes", {CC: function_of(100)}, None),
    ("sizes", {CC: "class Big {\n" + function_of(120) + "};\n"}, "long_one has 120 lines"),
    ("sizes", {CC: "namespace one {\n" + "int n;\n" * 200 + "}\n"}, None),
    ("sizes", {"hack/build": "#!/bin/bash\n# " + "x" * 120 + "\n"}, "columns"),
    # documents
    ("documents", {"dataplane/store/lane.h": "#pragma once\n"}, "does not say what lane.h is for"),
    ("documents", {"dataplane/wire/frame.h": "#pragma once\n"}, "no README.md"),
    ("documents", {"dataplane/runtime/uring/disk.h": "#pragma once\n"}, "does not say what uring/disk.h is for"),
    ("documents", {"dataplane/runtime/uring/disk.h": "#pragma once\n",
                   "dataplane/runtime/README.md": "`env.h`, `uring/disk.{h,cc}`. May include x. Not here: y.\n"}, None),
    ("documents", {"dataplane/store/README.md": CLEAN["dataplane/store/README.md"] + "| `gone.h` | |\n"}, "gone.h"),
    ("documents", {"hack/sim": "#!/bin/bash\n"}, "does not say what sim is for"),
    ("documents", {"dataplane/runtime/README.md": "`env.h` [x](../nowhere.md)\n"}, "not there"),
    ("documents", {"dataplane/runtime/README.md": "`env.h` [x](../docs/invariants.md#nothing)\n"}, "no such heading"),
    ("documents", {"hack/README.md": "`build` [x](../dataplane/docs/invariants.md#invariants)\n"}, None),
    ("documents", {"dataplane/runtime/README.md": "`env.h`. May include x.\n"}, "must not be here"),
    ("documents", {"dataplane/runtime/README.md": "`env.h`. Not here: x.\n"}, "may include"),
    ("documents", {"dataplane/store/README.md": CLEAN["dataplane/store/README.md"] + "| `journal.{h,cc}` | again |\n"},
     "two rows for"),
    ("documents", {"dataplane/README.md": "[r](runtime/README.md) [d](docs/README.md)\n"}, "no link to"),
    ("documents", {"dataplane/docs/format.md": "# Format\n"}, "no README.md links to it"),
    # invariants
    ("invariants", with_line("// I-JOURNAL-2"), "I-JOURNAL-2 is not in"),
    ("invariants", with_line("// I-JOURNAL-9"), "still says it is planned"),
    ("invariants", {H: CLEAN[H].replace("// I-JOURNAL-1\n", "")}, "used nowhere"),
    ("invariants", {"dataplane/docs/invariants.md": CLEAN["dataplane/docs/invariants.md"] + "| I-JOURNAL-1 | | |\n"},
     "twice"),
    ("invariants", {"tests/sim/campaign_test.cc": "// I-TEST-1\n"}, None),
    ("invariants", with_line("// I-TEST-1"), "I-TEST-1 is not in"),
    # planted
    ("planted", with_line('if (faults.planted("journal.new_bug")) return;'), "not in tests/sim/planted_bugs"),
    ("planted", with_line('if (faults.planted(name)) return;'), "as a literal"),
    ("planted", with_line('bool planted(std::string_view) override { return true; }'), "only tests may"),
    ("planted", {"tests/sim/planted_bugs/README.md": "| `journal.old_bug` | x |\n"}, "no code asks for"),
    ("planted", {"tests/sim/planted_bugs/README.md": "| `journal.old_bug` | x |\n",
                 **with_line('if (faults.planted("journal.old_bug")) return;')}, None),
]

# Checks of .clang-tidy that guard coroutines and lifetimes -> code that each must refuse.
TIDY_PRELUDE = """
#include <coroutine>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};
void use(std::string);
"""
TIDY_CASES = {
    "cppcoreguidelines-avoid-reference-coroutine-parameters": "Task f(int& n) { n = 1; co_return; }",
    "cppcoreguidelines-avoid-capturing-lambda-coroutines":
        "void f(int n) { auto task = [n]() -> Task { (void)n; co_return; }; task(); }",
    "misc-coroutine-hostile-raii":
        "Task f(std::mutex* m) { std::lock_guard guard(*m); co_await std::suspend_always(); }",
    "bugprone-use-after-move": "void f(std::string s) { use(std::move(s)); use(s); }",
    "bugprone-dangling-handle": 'std::string_view f() { std::string s = "x"; return s; }',
    "bugprone-empty-catch": "void f() { try { use({}); } catch (...) { } }",
    "bugprone-implicit-widening-of-multiplication-result": "unsigned long f(int n) { return n * n; }",
}

# What check_tidy drops: (text at the finding, is it a product of constants?).
PRODUCTS = [
    ("10 * kBlockBytes);", True),
    ("32 * 1024;", True),
    ("3 * store::kBlockBytes, n);", True),
    ("3 *\n  kBlockBytes);", True),
    ("kLeafBlocks * kBlockBytes) fail();", True),
    ("n * kBlockBytes;", False),
    ("kBlockBytes * n;", False),
    ("kBlockBytes * run.blocks;", False),
    ("2 * (3 + n) * 4;", False),
    ("3 *\n  n);", False),
]
# (coroutine parameter, does it refer to something that lives longer than any coroutine?)
PARAMETERS = [
    ("Env& env,", True),
    ("const Disk& disk)", True),
    ("Group& group)", False),
    ("EnvOptions& options)", False),
]


def run_tidy(code):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".clang-tidy").write_bytes((HACK.parent / ".clang-tidy").read_bytes())
        Path(folder, "case.cc").write_text(TIDY_PRELUDE + code + "\n", encoding="utf-8")
        return subprocess.run(["clang-tidy-19", "--quiet", Path(folder, "case.cc"), "--", "-std=c++20"],
                              capture_output=True, text=True, check=False)


def run(checker, changes):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CLEAN, **changes}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, "-B", HACK / f"check_{checker}.py", folder], capture_output=True,
                              text=True, check=False)


def main():
    failed = 0
    cases = [(checker, {}, None) for checker in sorted({case[0] for case in CASES})] + CASES
    with ThreadPoolExecutor() as pool:
        tidy_done = [pool.submit(run_tidy, code) for code in TIDY_CASES.values()]
        cases_done = [pool.submit(run, checker, changes) for checker, changes, _ in cases]
    for (checker, changes, words), future in zip(cases, cases_done):
        done = future.result()
        right = done.returncode == 0 if words is None else done.returncode == 1 and words in done.stdout
        if not right:
            failed += 1
            print(f"bites: {checker} with {changes}: expected {words or 'no complaint'}, got {done.returncode}: "
                  f"{done.stdout}{done.stderr}")
    for (check, code), future in zip(TIDY_CASES.items(), tidy_done):
        done = future.result()
        if done.returncode == 0 or f"[{check}," not in done.stdout:
            failed += 1
            print(f"bites: {check} accepts: {code}\n{done.stdout}{done.stderr}")
    for product, constant in PRODUCTS:
        if check_tidy.is_product_of_constants(product) != constant:
            failed += 1
            print(f"bites: check_tidy takes this for the wrong kind of product: {product}")
    for parameter, dropped in PARAMETERS:
        if bool(check_tidy.LIVES_LONGER.match(parameter)) != dropped:
            failed += 1
            print(f"bites: check_tidy is wrong about the coroutine parameter {parameter}")
    print(f"bites: {len(cases) + len(TIDY_CASES) + len(PRODUCTS) + len(PARAMETERS)} cases, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
