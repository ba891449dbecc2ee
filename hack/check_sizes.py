#!/usr/bin/env python3
"""Sizes of files, functions and lines of C++.

File       past 500 lines: a note (what second story does it tell?); past 800: refused.
Function   past 70 lines, its braces included: a note; past 100: refused.
Line       past 100 columns: refused (clang-format leaves long strings and comments alone). Table rows in comments too.
Script     past 120 columns: refused.

Functions are found by their braces: a `{` directly inside a file, namespace or class whose head has parentheses.
"""
import re

import tree

FILE_NOTE, FILE_MAX = 500, 800
FUNCTION_NOTE, FUNCTION_MAX = 70, 100
COLUMNS_MAX, SCRIPT_COLUMNS_MAX = 100, 120

OUTER = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
NAME = re.compile(r"([~\w:]+|operator\s*\S+)\s*\(")


def functions(code):
    """(name, first line, lines) of every function body in scrubbed text."""
    code = re.sub(r"^[ \t]*#(?:\\\n|.)*", lambda match: re.sub(r"[^\n]", " ", match[0]), code, flags=re.M)
    found, stack, head_start = [], [], 0
    for match in re.finditer(r"[{};]", code):
        if match[0] == "{":
            head = code[head_start:match.start()]
            inside = stack[-1][0] if stack else "outer"
            kind = "inner"
            if inside == "outer" and not head.rstrip().endswith(("=", ",")):
                before_parenthesis = head.split("(")[0]
                if OUTER.search(before_parenthesis):
                    kind = "outer"
                elif "(" in head:
                    kind = "function"
            first = code.count("\n", 0, match.start() - len(head.lstrip())) + 1
            stack.append((kind, first, head))
        elif match[0] == "}" and stack:
            kind, first, head = stack.pop()
            if kind == "function":
                name = NAME.search(head)
                found.append((name[1] if name else "?", first, code.count("\n", 0, match.start()) + 2 - first))
        head_start = match.end()
    return found


def main():
    root = tree.root_from_arguments()
    problems, notes = [], []
    paths = tree.files(root, *tree.CPP, under=("dataplane", "operator", "csi", "tests"))
    for path in paths:
        text = (root / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        if len(lines) > FILE_MAX:
            problems.append(f"{path}: {len(lines)} lines, at most {FILE_MAX}: split it by what its parts are about")
        elif len(lines) > FILE_NOTE:
            notes.append(f"{path}: {len(lines)} lines")
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                problems.append(f"{path}:{number}: {len(line)} columns, at most {COLUMNS_MAX}")
        for name, first, length in functions(tree.scrub(text)):
            if length > FUNCTION_MAX:
                problems.append(f"{path}:{first}: {name} has {length} lines, at most {FUNCTION_MAX}")
            elif length > FUNCTION_NOTE:
                notes.append(f"{path}:{first}: {name} has {length} lines")
    for path in tree.files(root, under=("hack", ".ci")):
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".py" or text.startswith("#!"):
            problems += [f"{path}:{number}: {len(line)} columns, at most {SCRIPT_COLUMNS_MAX}"
                         for number, line in enumerate(text.splitlines(), 1) if len(line) > SCRIPT_COLUMNS_MAX]
    tree.finish("sizes", problems, len(paths), notes)


if __name__ == "__main__":
    main()
