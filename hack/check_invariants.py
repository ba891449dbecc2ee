#!/usr/bin/env python3
"""Invariants have one list: dataplane/docs/invariants.md.

Every id (I-STORE-3) that code or tests use is a row of the list, every row is used in dataplane/, and no id is there
twice. A row may say "planned" in its last column; such an id must not be used yet. I-TEST-n is for tests of
the machinery itself: it is in no list.
"""
import re
from collections import defaultdict

import tree

DOCUMENT = "dataplane/docs/invariants.md"
ID = re.compile(r"\bI-[A-Z]+(?:-[A-Z]+)*-\d+\b")
ROW = re.compile(r"^\|\s*(I-[A-Z]+(?:-[A-Z]+)*-\d+)\s*\|(.*)\|\s*$", re.M)


def main():
    root = tree.root_from_arguments()
    problems = []
    listed = {}
    for identity, rest in ROW.findall((root / DOCUMENT).read_text(encoding="utf-8")):
        if identity in listed:
            problems.append(f"{DOCUMENT}: {identity} is there twice")
        listed[identity] = "planned" in rest.split("|")[-1]

    used = defaultdict(set)
    paths = tree.files(root, *tree.CPP, under=("dataplane", "tests"))
    for path in paths:
        for identity in ID.findall((root / path).read_text(encoding="utf-8")):
            if not (identity.startswith("I-TEST-") and path.parts[0] == "tests"):
                used[identity].add(path)
    for identity, where in sorted(used.items()):
        if identity not in listed:
            problems.append(f"{min(where)}: {identity} is not in {DOCUMENT}")
        elif listed[identity]:
            problems.append(f"{min(where)}: {identity} is used, but {DOCUMENT} still says it is planned")
    for identity, planned in listed.items():
        if not planned and not any(path.parts[0] == "dataplane" for path in used[identity]):
            problems.append(f"{DOCUMENT}: {identity} is used nowhere in dataplane/")
    tree.finish("invariants", problems, len(paths))


if __name__ == "__main__":
    main()
