"""The command ``starling``, which the package carries."""

import os
import shutil
import sys
from pathlib import Path


def tool_path() -> str:
    """Where the command ``starling`` is: in the package, in the build folder it is imported from, or in PATH."""
    here = Path(__file__).parent
    built = Path(sys.modules["starling._core"].__file__).parent
    for place in (here / "bin", built / "bin", built.parents[1] / "bin"):
        if os.access(place / "starling", os.X_OK):
            return str(place / "starling")
    found = shutil.which("starling")
    if found is None:
        raise FileNotFoundError("the command starling is neither in the package starling nor in PATH")
    return found


def main() -> None:
    """The console script ``starling``: becomes the command."""
    path = tool_path()
    os.execv(path, ["starling", *sys.argv[1:]])
