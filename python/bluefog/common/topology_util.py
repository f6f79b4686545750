"""``starling.topology_util`` under BlueFog's name."""

from starling.topology_util import *  # noqa: F401,F403
from starling.topology_util import __all__  # noqa: F401
