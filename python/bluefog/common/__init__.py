"""The parts of BlueFog outside ``bluefog.torch``: ``topology_util`` and ``util``."""
