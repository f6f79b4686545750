"""The metadata of a wheel. The version is defined in one place: project() in CMakeLists.txt."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HEADER = """\
Metadata-Version: 2.1
Name: starling
Version: {version}
Summary: Decentralized training: one model, many workers, a few neighbors each
License: Apache-2.0
License-File: LICENSE
Keywords: decentralized,distributed,training,gossip,topology,torch
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
Requires-Dist: numpy
Requires-Dist: torch>=1.13 ; extra == "torch"
Requires-Dist: networkx ; extra == "torch"
Requires-Dist: scipy ; extra == "notebook"
Requires-Dist: matplotlib ; extra == "notebook"
Provides-Extra: torch
Provides-Extra: notebook
Description-Content-Type: text/markdown

"""


def version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"project\(Starling VERSION ([0-9.]+)", text)
    if found is None:
        raise RuntimeError("CMakeLists.txt has no project(Starling VERSION ...)")
    return found.group(1)


def metadata() -> str:
    return HEADER.format(version=version()) + (ROOT / "README.md").read_text(encoding="utf-8")


def entry_points(with_bluefog: bool) -> str:
    scripts = {"starling": "starling.tool:main"}
    if with_bluefog:
        scripts |= {"bfrun": "starling.bfrun:main", "ibfrun": "starling.ibfrun:main"}
    return "[console_scripts]\n" + "".join(f"{name} = {target}\n" for name, target in scripts.items())
