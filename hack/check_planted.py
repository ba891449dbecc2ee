#!/usr/bin/env python3
"""Planted bugs have one list: the table in tests/sim/planted_bugs/README.md (dataplane/docs/decisions/0002).

Every name that dataplane/ asks planted() for is the first cell of a row, every row is asked for, each name is a literal
where it is asked, and no class in dataplane/ overrides planted(): production can only answer false.
"""
import re
from collections import defaultdict

import tree

LIST = "tests/sim/planted_bugs/README.md"
CALL = re.compile(r"\bplanted\s*\(\s*(\"([a-z0-9_.]*)\"\s*\)|(?!std::string_view)[^)\s][^)]*\))")
ROW = re.compile(r"^\|\s*`?([a-z0-9_]+\.[a-z0-9_.]+)`?\s*\|", re.M)
OVERRIDE = re.compile(r"\bplanted\s*\([^)]*\)\s*(const\s*)?(override|final)")


def main():
    root = tree.root_from_arguments()
    problems = []
    asked = defaultdict(list)
    paths = tree.files(root, *tree.CPP, under=("dataplane",))
    for path in paths:
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            if OVERRIDE.search(line):
                problems.append(f"{path}:{number}: overrides planted(); only tests may")
            for match in CALL.finditer(line.split("//")[0]):
                if match[2] is None:
                    problems.append(f"{path}:{number}: {match[0]}: write the name of the bug as a literal")
                else:
                    asked[match[2]].append(f"{path}:{number}")
    listed = ROW.findall((root / LIST).read_text(encoding="utf-8")) if (root / LIST).is_file() else []
    problems += [f"{where[0]}: planted bug {name} is not in {LIST}"
                 for name, where in asked.items() if name not in listed]
    problems += [f"{LIST}: no code asks for {name}" for name in listed if name not in asked]
    tree.finish("planted", problems, len(paths))


if __name__ == "__main__":
    main()
