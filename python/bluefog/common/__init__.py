"""What BlueFog keeps outside ``bluefog.torch``: ``topology_util`` and ``util``."""
