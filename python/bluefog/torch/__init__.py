"""Becomes ``starling.torch``: it and its submodules are the same objects under BlueFog's names."""

import importlib
import pkgutil
import sys

import starling.topology_util
import starling.torch as _target

# Aliases all modules: a module without an alias would be loaded a second time under the other name, with
# separate state.
_modules = {"topology_util": starling.topology_util}
for _found in pkgutil.iter_modules(_target.__path__):
    _modules[_found.name] = importlib.import_module(f"{_target.__name__}.{_found.name}")
sys.modules.update({f"{__name__}.{_name}": _module for _name, _module in _modules.items()})
if not hasattr(_target, "topology_util"):
    _target.topology_util = starling.topology_util
sys.modules[__name__] = _target
