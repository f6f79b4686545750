"""The command ``starling`` inside the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn, Sequence


def tool_path() -> str:
    """The path of the command ``starling``: in the package, or in the build folder it is imported from."""
    here = Path(__file__).parent
    built = Path(sys.modules["starling._core"].__file__).parent
    for place in (here / "bin", built / "bin", built.parents[1] / "bin"):
        if os.access(place / "starling", os.X_OK):
            return str(place / "starling")
    # Not from PATH, which may contain the console script that calls this.
    raise FileNotFoundError(f"{here} was built without the command starling (-DSTARLING_TOOL=OFF)")


def own_python_first() -> None:
    """In a virtual environment, activated or not, makes child programs find its ``python``."""
    if sys.prefix != sys.base_prefix:
        scripts = os.path.dirname(sys.executable)
        os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])


def become_tool(arguments: Sequence[str]) -> NoReturn:
    """Executes ``starling ARGUMENTS`` in place of this process."""
    own_python_first()
    os.execv(tool_path(), ["starling", *arguments])


def main() -> NoReturn:
    """The console script ``starling``: executes the command."""
    become_tool(sys.argv[1:])
