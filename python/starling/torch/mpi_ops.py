"""All operations under the name that BlueFog's programs import them from."""

from . import handles, neighbors, operations, process, timeline, windows
from .handles import *
from .neighbors import *
from .operations import *
from .process import *
from .timeline import *
from .windows import *

__all__ = [name for module in (handles, neighbors, operations, process, timeline, windows) for name in module.__all__]
