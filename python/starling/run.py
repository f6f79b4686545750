"""``python -m starling.run -n 4 python train.py`` is ``starling run -n 4 python train.py``."""

import sys

from .tool import become_tool

if __name__ == "__main__":
    become_tool(["run", *sys.argv[1:]])
