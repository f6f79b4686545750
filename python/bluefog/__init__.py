"""BlueFog's names for Starling, so that programs written for BlueFog run unchanged.

``bluefog.torch`` is ``starling.torch``; ``bluefog.common`` has ``topology_util`` and ``util``. New programs
write ``import starling.torch as bf``.
"""

from starling import __version__

__all__ = ["__version__"]
