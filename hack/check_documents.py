#!/usr/bin/env python3
"""Documents keep up with the tree.

README    Every folder in dataplane/, tests/ and hack/ (operator/ and csi/ when they have code) that holds source files
          has a README.md, or the folder of its module has one (dataplane/store, tests/unit), that names each of them:
          `journal.h`, `journal.{h,cc}`, and with their folder from further up, `uring/reactor.h`. A name in the first
          column of a table that is no longer a file is refused too.
          No two rows of a README start with the same cell.
          In dataplane/ it also says what the folder may include and what must not be here.
Docs      Every .md in dataplane/docs is linked from the README.md of its folder, or of dataplane/docs; the README.md of
          every folder in dataplane/ and tests/ from the one above it.
Links     A relative link in any .md leads to a file or folder, and its #anchor to a heading.
"""
import re
from pathlib import Path

import tree

DOCS = Path("dataplane/docs")

SOURCE = (".h", ".cc", ".proto", ".py", ".c", ".sh")
FOLDERS = ("dataplane", "tests", "hack", "operator", "csi")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
BRACES = re.compile(r"([\w./-]*)\.\{([\w, ]+)\}")
FILE_NAME = re.compile(r"[\w-]+(?:/[\w-]+)*\.(?:h|cc|proto|py|c|sh)\b")


def names_in(text):
    """File names that a README mentions, with a.{h,cc} spelt out."""
    spelt = BRACES.sub(lambda match: " ".join(f"{match[1]}.{suffix.strip()}" for suffix in match[2].split(",")), text)
    return set(FILE_NAME.findall(spelt)), spelt


def is_source(root, path):
    if path.suffix in SOURCE:
        return True
    return path.parts[0] == "hack" and not path.suffix and (root / path).read_bytes()[:2] == b"#!"


def check_readmes(root, problems):
    sources = [path for path in tree.files(root, under=FOLDERS) if is_source(root, path)]
    readmes = {}
    for path in sources:
        modules = [folder for folder in path.parents if len(folder.parts) >= 2 or str(folder) in ("hack", "tests")]
        above = [folder / "README.md" for folder in modules]
        readme = next((readme for readme in above if (root / readme).is_file()), None)
        if readme is None:
            problems.append(f"{path.parent}: no README.md that says what {path.name} is for")
            continue
        if readme not in readmes:
            readmes[readme] = names_in((root / readme).read_text(encoding="utf-8"))
        names, text = readmes[readme]
        name = str(path.relative_to(readme.parent))
        if name not in names and not (not path.suffix and re.search(rf"`{re.escape(name)}\b", text)):
            problems.append(f"{readme}: does not say what {name} is for")
    for readme, (_, text) in readmes.items():
        for pattern, words in ((r"may\s+include", "may include"), (r"not\s+(be\s+)?here", "must not be here")):
            if readme.parts[0] == "dataplane" and len(readme.parts) == 3 and not re.search(pattern, text, re.I):
                problems.append(f'{readme}: does not say what "{words}"')
        for row in re.findall(r"^\|([^|]*)\|", text, re.M):
            for name in FILE_NAME.findall(row):
                if not (root / readme.parent / name).exists():
                    problems.append(f"{readme}: names {name}, which is not there")
    return len(sources)


def anchors(text):
    headings = re.findall(r"^#+ +(.*?)\s*$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(root, readme):
    if not (root / readme).is_file():
        return set()
    return {(root / readme.parent / target.split("#")[0]).resolve()
            for target in LINK.findall((root / readme).read_text(encoding="utf-8"))}


def check_docs(root, problems):
    top = links_of(root, DOCS / "README.md")
    for path in tree.files(root, ".md", under=(DOCS,)):
        linked = top | links_of(root, path.parent / "README.md")
        if path != DOCS / "README.md" and (root / path).resolve() not in linked:
            problems.append(f"{path}: no README.md links to it")


def check_folders(root, problems):
    for top in (Path("dataplane"), Path("tests")):
        linked = links_of(root, top / "README.md")
        problems += [f"{top}/README.md: no link to {path}" for path in tree.files(root, "README.md", under=(top,))
                     if len(path.parts) == 3 and (root / path).resolve() not in linked]


def check_rows(root, problems):
    for path in tree.files(root, "README.md"):
        text = (root / path).read_text(encoding="utf-8")
        cells = [cell.strip() for cell in re.findall(r"^\|([^|]*)\|", text, re.M)]
        twice = {cell for cell in cells if cells.count(cell) > 1 and re.search(r"[`\[]", cell)}
        problems += [f"{path}: two rows for {cell}" for cell in sorted(twice)]


def check_links(root, problems):
    for path in tree.files(root, ".md"):
        text = (root / path).read_text(encoding="utf-8")
        for target in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.S)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            leads_to = root / path.parent / name if name else root / path
            if not leads_to.exists():
                problems.append(f"{path}: link to {target}, which is not there")
            elif anchor and leads_to.suffix == ".md" and anchor not in anchors(leads_to.read_text(encoding="utf-8")):
                problems.append(f"{path}: link to {target}: no such heading")


def main():
    root = tree.root_from_arguments()
    problems = []
    looked_at = check_readmes(root, problems)
    check_docs(root, problems)
    check_folders(root, problems)
    check_rows(root, problems)
    check_links(root, problems)
    tree.finish("documents", problems, looked_at)


if __name__ == "__main__":
    main()
