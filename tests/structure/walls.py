#!/usr/bin/env python3
"""Checks the dependencies between folders: `walls.py ROOT` prints file:line and what is expected there, and fails if it prints anything.

Includes go down the floors of starling/base/floors.h, never up, nor into a folder that is CLOSED to the including one. A namespace
follows its folder, and a type has one definition. Programs and pages that users read or copy include only the headers of
include/starling/, which the library itself does not include.
"""

import pathlib
import re
import sys

# The fabrics that each fabric may include: wrappers and engines include what they are built on.
FABRICS = {
    "c10d": {"network"},
    "cuda": {"local"},
    "hybrid": {"local", "network"},
    "mpi": {"network"},
}
# The folders above the library, and what each may include besides the library and itself.
ABOVE = {"tool": set(), "bench": {"tool"}, "python": set(), "examples": set(), "tests": {"tool", "bench"}}
BENCHMARKS_OF_THE_TOOL = ("bench", "starling::tool")  # the commands that tool/command.h declares are defined in bench/
# Programs and pages that users read or copy.
FOR_USERS = ("README.md", "docs/**/*.md", "examples/**/*.cpp", "examples/**/*.h", "tests/package/**/*.cpp", "tests/tool/extension/*.cpp")
# Includes that are forbidden although the folder is below: (folder, folder, why).
CLOSED = (("starling/method/family", "starling/kernel", "methods leave arithmetic to their block (method/block.h) and codecs"),)
EMBEDDED = "starling::embedded"  # files that CMake compiles in (cmake/EmbedFile.cmake)
GUIDE = "## Follow one training step"  # in docs/design.md
MOST_FILES_OF_A_STEP = 8

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]((?:starling|tool|bench|python|examples|tests)/[^>"]+)[>"]', re.M)
USER_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"]starling/([^>"]+)[>"])', re.M)
COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
TYPE = re.compile(r"(?:^|[;{}>]|\bexport\b)\s*(?:template\s*<[^{};]*>\s*)?(?:class|struct|union|enum(?:\s+class|\s+struct)?)\s+"
                  r"(?:alignas\([^)]*\)\s*|\[\[[^\]]*\]\]\s*)*([A-Za-z_][\w:]*)\s*(?:final\s*)?(?::[^{};]*)?$")
FORWARD = re.compile(r"\s*((?:template\s*<[^{};]*>\s*)?(?:class|struct|enum\s+class|enum)\s+\w+\s*(?::\s*[\w:]+\s*)?;\s*)+")


def without_words(text):
    """Returns the code with comments and strings replaced by blanks, so that positions stay the same."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    return DIRECTIVE.sub(blank, COMMENT_OR_STRING.sub(blank, text))


def line_of(text, at):
    return text.count("\n", 0, at) + 1


class Source:
    """One file: its includes, the namespaces it opens and the types it defines in them."""

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.folder = self.path.rpartition("/")[0]
        text = path.read_text(encoding="utf-8")
        plain = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
        self.includes = [(line_of(plain, m.start(1)), m.group(1)) for m in INCLUDE.finditer(plain)]
        self.namespaces = []  # (line, qualified name, text inside it without nested namespaces)
        self.types = []  # (line, qualified name)
        self._read(without_words(text))

    def _read(self, code):
        open_scopes = []  # [kind, qualified name, line, pieces of text]
        start = 0
        for brace in re.finditer(r"[{}]", code):
            at = brace.start()
            head = code[start:at]
            if open_scopes and open_scopes[-1][0] == "namespace":
                open_scopes[-1][3].append(head)
            start = at + 1
            if brace.group() == "}":
                if open_scopes:
                    kind, name, line, pieces = open_scopes.pop()
                    if kind == "namespace":
                        self.namespaces.append((line, name, "".join(pieces)))
                continue
            opened = re.search(r"(?:^|[;{}\s])namespace\s*([\w:]*)\s*$", head)
            if opened and all(scope[0] == "namespace" for scope in open_scopes):
                outer = open_scopes[-1][1] + "::" if open_scopes else ""
                name = outer + (opened.group(1) or "(unnamed)")
                if open_scopes:  # its head belongs to neither namespace
                    open_scopes[-1][3][-1] = head[: opened.start()]
                open_scopes.append(["namespace", name, line_of(code, at), []])
                continue
            if open_scopes and all(scope[0] == "namespace" for scope in open_scopes):
                open_scopes[-1][3].append("{}")
                found = TYPE.search(head)
                if found and "(unnamed)" not in open_scopes[-1][1]:
                    self.types.append((line_of(code, start - 1 - len(head) + found.start(1)), f"{open_scopes[-1][1]}::{found.group(1)}"))
            open_scopes.append(["other", "", 0, []])


class Walls:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.problems = []
        self.floors = self._order()
        self.public = sorted(p.name for p in (self.root / "include/starling").glob("*.h")) + ["version.h"]
        self.sources = []
        for top in ("starling", *ABOVE):
            for path in sorted((self.root / top).rglob("*")):
                if path.suffix in (".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh", ".inc") and path.is_file():
                    self.sources.append(Source(self.root, path))

    def _order(self):
        """base, then the floors from bottom to top, as floors.h chains them."""
        text = (self.root / "starling/base/floors.h").read_text(encoding="utf-8")
        above = dict((low, high) for high, low in re.findall(
            r"namespace starling::(\w+) \{\s*using namespace starling::(\w+);\s*\}", text) if high not in ABOVE)
        lowest = set(above) - set(above.values())
        order = ["base"]
        floor = lowest.pop() if len(lowest) == 1 else None
        while floor:
            order.append(floor)
            floor = above.get(floor)
        return order

    def say(self, source, line, what):
        self.problems.append(f"{source.path}:{line}: {what}")

    def check(self):
        folders = {p.name for p in (self.root / "starling").iterdir() if p.is_dir()}
        if folders != set(self.floors):
            self.problems.append("starling/base/floors.h:1: chains the floors " + " ".join(self.floors) +
                                 "; the folders of starling/ are " + " ".join(sorted(folders)))
        for source in self.sources:
            self._includes(source)
            self._namespaces(source)
        self._cycles()
        self._types()
        self._guide()
        self._for_users()
        return self.problems

    def _includes(self, source):
        parts = source.path.split("/")
        for line, target in source.includes:
            to = target.split("/")
            if parts[0] != "starling":
                if to[0] not in ("starling", parts[0]) and to[0] not in ABOVE[parts[0]]:
                    self.say(source, line, f"{parts[0]}/ includes {target}: it may include " +
                             ", ".join(sorted(f + "/" for f in ABOVE[parts[0]] | {"starling", parts[0]})))
                continue
            if to[0] != "starling":
                self.say(source, line, f"the library includes {target}: it stands below {to[0]}/ and includes starling/ only")
                continue
            if len(to) == 2 and to[1] in self.public and to[1] != "version.h":
                self.say(source, line, f"the library includes {target}, which is for its users: include the headers of the floors")
            if len(parts) < 3 or len(to) < 3 or parts[1] not in self.floors or to[1] not in self.floors:
                continue
            if self.floors.index(to[1]) > self.floors.index(parts[1]):
                self.say(source, line, f"{parts[1]}/ includes {target}, which is a floor above; it may include " +
                         " ".join(self.floors[: self.floors.index(parts[1]) + 1]))
            for folder, closed, why in CLOSED:
                if source.path.startswith(folder + "/") and target.startswith(closed + "/"):
                    self.say(source, line, f"{folder}/ includes {target}: {why}")
            if parts[1] == to[1] == "fabric" and len(parts) > 3 and len(to) > 3 and parts[2] != to[2]:
                allowed = FABRICS.get(parts[2], set())
                if to[2] not in allowed:
                    self.say(source, line, f"fabric/{parts[2]}/ includes {target}: beside fabric/*.h and its own files it may include " +
                             (", ".join(f"fabric/{f}/" for f in sorted(allowed)) or "no other fabric"))

    def _expected(self, source):
        parts = source.path.split("/")
        if parts[0] == "starling":
            if len(parts) < 3:
                return None
            return "starling" if parts[1] == "base" else "starling::" + parts[1]
        if parts[0] == "tests":
            if len(parts) < 3 or parts[1] not in (*self.floors, "tool", "bench"):
                return None
            return "starling" if parts[1] == "base" else "starling::" + parts[1]
        return "starling::" + parts[0] if parts[0] in ("tool", "bench", "python") else None

    def _namespaces(self, source):
        expected = self._expected(source)
        if expected is None or source.path == "starling/base/floors.h":
            return
        floor = expected.rpartition("::")[2]
        for line, name, inside in source.namespaces:
            name = name.replace("::(unnamed)", "")
            if not re.match(r"starling\b", name) or not inside.strip() or name == EMBEDDED:
                continue
            if expected == "starling":
                if name.split("::")[1:2] and name.split("::")[1] in (*self.floors, *ABOVE):
                    self.say(source, line, f"opens namespace {name}; this folder's is starling")
                continue
            if name == expected or name.startswith(expected + "::") or (floor, name) == BENCHMARKS_OF_THE_TOOL:
                continue
            if name == "starling" and re.fullmatch(rf"(\s*using {floor}::[\w:]+;)+\s*", inside):
                continue  # names lifted into the public namespace
            if name.startswith("starling::") and FORWARD.fullmatch(inside):
                continue  # only declares a class of another folder
            self.say(source, line, f"opens namespace {name}; this folder's is {expected}" +
                     (f" (public names are lifted into starling by `using {floor}::Name;` alone)" if name == "starling" else ""))

    def _cycles(self):
        """Subfolders of a folder must not include each other in a cycle."""
        edges = {}  # (parent, from) -> {to: (source, line, target)}
        for source in self.sources:
            here = source.folder.split("/")
            for line, target in source.includes:
                there = target.split("/")[:-1]
                common = 0
                while common < min(len(here), len(there)) and here[common] == there[common]:
                    common += 1
                if common < len(here) and common < len(there):
                    parent = "/".join(here[:common])
                    edges.setdefault((parent, here[common]), {}).setdefault(there[common], (source, line, target))
        reported = set()
        for parent, first in sorted(edges):
            path = self._way_back(edges, parent, first)
            if path and frozenset(path) not in reported:
                reported.add(frozenset(path))
                source, line, target = edges[(parent, path[0])][path[1]]
                self.say(source, line, f"includes {target} and closes a cycle of folders: " +
                         " -> ".join((parent + "/" if parent else "") + name for name in path))

    @staticmethod
    def _way_back(edges, parent, first):
        ways = [[first]]
        seen = set()
        while ways:
            way = ways.pop(0)
            for to in sorted(edges.get((parent, way[-1]), {})):
                if to == first:
                    return way + [first]
                if to not in seen:
                    seen.add(to)
                    ways.append(way + [to])
        return None

    def _types(self):
        first = {}
        for source in self.sources:
            if source.path.startswith(("examples/", "tests/package/")):
                continue  # separate programs
            for line, name in source.types:
                if not name.startswith("starling"):
                    continue
                if name in first and first[name][0].path != source.path:
                    other, where = first[name]
                    self.say(source, line, f"defines {name}, as {other.path}:{where} does; give one of the two another name")
                first.setdefault(name, (source, line))

    def _for_users(self):
        for pattern in FOR_USERS:
            for path in sorted(self.root.glob(pattern)):
                text = path.read_text(encoding="utf-8")
                for found in USER_INCLUDE.finditer(text):
                    written, header = found.groups()
                    if header not in self.public or written[0] != "<":
                        self.problems.append(
                            f"{path.relative_to(self.root).as_posix()}:{line_of(text, found.start(1))}: includes {written}; users include " +
                            " ".join(f"<starling/{name}>" for name in self.public))

    def _guide(self):
        """docs/design.md follows one training step through at most eight files; the files and the functions named there must exist."""
        page = self.root / "docs/design.md"
        if not page.is_file():
            return
        lines = page.read_text(encoding="utf-8").splitlines()
        if GUIDE not in lines:
            self.problems.append(f"docs/design.md:1: has no section '{GUIDE}'")
            return
        first = lines.index(GUIDE) + 1
        items, path, code = [], None, ""
        for number, line in enumerate(lines[first:], first + 1):
            if line.startswith("## "):
                break
            wrong = lambda what: self.problems.append(f"docs/design.md:{number}: {what}")
            for name in re.findall(r"`(starling/[\w/.]+)`", line):
                path = name
                file = self.root / path
                code = file.read_text(encoding="utf-8") if file.is_file() else ""
                if not file.is_file():
                    wrong(f"{path} does not exist")
            if re.match(r"\d+\. ", line):
                items.append(path)
            quoted = line.startswith("      ") and line.strip()
            if quoted and quoted not in code:
                wrong(f"{path} does not have the line {quoted}")
            for owner, function in re.findall(r"`(\w+)::(\w+)\(\)`", line):
                inside = re.search(rf"\bclass {owner}\b[^;]*\{{.*?\b{function}\(", code, re.S)
                if code and f"{owner}::{function}(" not in code and not inside:
                    wrong(f"{path} does not define {owner}::{function}()")
        if not 1 <= len(items) <= MOST_FILES_OF_A_STEP:
            self.problems.append(f"docs/design.md:{first}: a training step is followed in {len(items)} files, not in 1 to {MOST_FILES_OF_A_STEP}")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: walls.py ROOT")
    walls = Walls(sys.argv[1])
    problems = walls.check()
    print("\n".join(problems) if problems else f"{len(walls.sources)} files, no wall is broken")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
