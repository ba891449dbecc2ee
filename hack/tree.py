"""What the checkers share: the files of the source tree, C++ text without comments and strings, and reporting."""
import os
import re
import sys
from pathlib import Path

SKIPPED = {".git", "build", ".cache", "__pycache__", "node_modules"}
CPP = (".h", ".cc")


def root_from_arguments():
    """Checkers take one optional argument: the tree to look at (their own test gives them small ones)."""
    return Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent


def files(root, *suffixes, under=("",)):
    """Paths relative to `root`, sorted, of files with one of the suffixes (all files when none is given)."""
    found = []
    for top in under:
        for folder, folders, names in os.walk(root / top):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            found += [Path(folder, name).relative_to(root) for name in names
                      if not suffixes or name.endswith(suffixes)]
    return sorted(found)


_SCRUB = re.compile(
    r'R"(?P<tag>[^()\s\\]*)\((?:.|\n)*?\)(?P=tag)"'     # raw string
    r'|"(?:\\.|[^"\\\n])*"'                             # string
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"             # character, not a digit separator
    r"|//[^\n]*|/\*(?:.|\n)*?\*/")                      # comments


def scrub(text):
    """The same text with comments, strings and characters blanked; lines and columns stay where they are."""
    return _SCRUB.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def finish(name, problems, looked_at, notes=()):
    """Prints what was found and ends the checker: exit 1 when there is a problem."""
    for note in notes:
        print(f"{name}: note: {note}")
    for problem in problems:
        print(f"{name}: {problem}")
    if looked_at == 0:
        problems = ["looked at nothing"]
        print(f"{name}: looked at nothing: is this the root of the source tree?")
    sys.exit(1 if problems else 0)
