"""All operations, under the module name from which BlueFog's programs import them."""

from . import handles, neighbors, operations, process, timeline, windows
from .handles import *
from .neighbors import *
from .operations import *
from .process import *
from .timeline import *
from .windows import *

__all__ = []
for _module in (handles, neighbors, operations, process, timeline, windows):
    __all__ += _module.__all__
