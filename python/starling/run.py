"""``python -m starling.run -n 4 -- python train.py`` is ``starling run -n 4 -- python train.py``."""

import os
import sys

from .tool import tool_path

if __name__ == "__main__":
    path = tool_path()
    os.execv(path, ["starling", "run", *sys.argv[1:]])
