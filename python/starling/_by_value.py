"""Functions and classes of a notebook as bytes, for workers that cannot import them."""

from __future__ import annotations

import dis
import enum
import importlib
import io
import marshal
import pickle
import sys
import types
import uuid
import weakref
from typing import Any, Iterator

# A class has the same token on both sides, so that returned instances have the notebook's class.
_tokens: "weakref.WeakKeyDictionary[type, str]" = weakref.WeakKeyDictionary()
_classes: "weakref.WeakValueDictionary[str, type]" = weakref.WeakValueDictionary()

_EMPTY_CELL = "starling: a closure's variable without a value"
_HEAP_TYPE = 1 << 9
_OWN_ENTRIES = {"__dict__", "__weakref__", "_abc_impl", "__slots__", "__module__", "__qualname__"}


def dumps(value: Any, carry_globals: bool = True) -> bytes:
    """Pickles ``value``. Functions and classes that cannot be imported are sent as code, together with the globals they
    use unless ``carry_globals`` is false."""
    try:
        return _dump(value, carry_globals)
    except Exception as error:
        culprit = _culprit(value, carry_globals) if isinstance(value, types.FunctionType) else None
        if culprit is None:
            raise
        raise TypeError(f"{value.__name__} uses {culprit}, which cannot be sent: {error}") from error


def loads(data: bytes) -> Any:
    """Unpickles a value; functions of a notebook find their globals in this process's ``__main__``."""
    return pickle.loads(data)


def _dump(value: Any, carry_globals: bool) -> bytes:
    out = io.BytesIO()
    _Pickler(out, carry_globals).dump(value)
    return out.getvalue()


def _culprit(function: types.FunctionType, carry_globals: bool) -> "str | None":
    closure = zip(function.__code__.co_freevars, function.__closure__ or ())
    used = {name: _cell_value(cell) for name, cell in closure}
    used.update(_globals_of(function) if carry_globals else {})
    for name, value in used.items():
        try:
            _dump(value, carry_globals)
        except Exception:
            return name
    return None


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, carry_globals: bool):
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self._carry_globals = carry_globals

    def reducer_override(self, value: Any) -> Any:
        reduce = _REDUCERS.get(type(value))
        if reduce is not None:
            return reduce(value)
        if isinstance(value, types.FunctionType) and not _importable(value):
            return _reduce_function(value, self._carry_globals)
        if isinstance(value, type) and value.__flags__ & _HEAP_TYPE and not _importable(value):
            return _reduce_class(value)
        if type(value).__module__ == "dataclasses":
            return _reduce_sentinel(value)
        return NotImplemented


_REDUCERS = {
    types.ModuleType: lambda module: (importlib.import_module, (module.__name__,)),
    types.MappingProxyType: lambda one: (_make_proxy, (dict(one),)),
    property: lambda one: (property, (one.fget, one.fset, one.fdel, one.__doc__)),
    staticmethod: lambda one: (staticmethod, (one.__func__,)),
    classmethod: lambda one: (classmethod, (one.__func__,)),
}


def _make_proxy(content: dict) -> types.MappingProxyType:
    return types.MappingProxyType(content)


def _importable(value: Any) -> bool:
    if value.__module__ in ("__main__", "__mp_main__"):
        return False
    found = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _reduce_sentinel(value: Any) -> Any:
    # dataclasses compares MISSING and similar values by identity.
    module = sys.modules["dataclasses"]
    name = next((name for name, one in vars(module).items() if one is value), None)
    return NotImplemented if name is None else (getattr, (module, name))


def _code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_objects(constant)


def _globals_of(function: types.FunctionType) -> "dict[str, Any]":
    names = {
        instruction.argval
        for code in _code_objects(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return {name: function.__globals__[name] for name in sorted(names) if name in function.__globals__}


def _submodules(function: types.FunctionType, used: "list[Any]") -> "list[str]":
    """``import scipy.sparse`` binds only scipy: the submodules that the code names must be loaded there, too."""
    words = {name for code in _code_objects(function.__code__) for name in code.co_names}
    packages = [value.__name__ + "." for value in used if isinstance(value, types.ModuleType)]
    return sorted(
        name for name in list(sys.modules)
        for package in packages if name.startswith(package) and words.issuperset(name[len(package):].split("."))
    )


def _cell_value(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY_CELL


def _reduce_function(function: types.FunctionType, carry_globals: bool) -> tuple:
    cells = [_cell_value(cell) for cell in function.__closure__ or ()]
    used = _globals_of(function) if carry_globals else {}
    attributes = {
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "__annotations__": function.__annotations__,
        "__dict__": function.__dict__,
    }
    state = (attributes, cells, used, _submodules(function, [*used.values(), *cells]))
    made = (marshal.dumps(function.__code__), function.__name__, len(cells))
    return _make_function, made, state, None, None, _fill_function


def _make_function(code: bytes, name: str, cells: int) -> types.FunctionType:
    # Initially empty, because the function may be among its own globals or in its own closure.
    closure = tuple(types.CellType() for _ in range(cells))
    return types.FunctionType(marshal.loads(code), vars(sys.modules["__main__"]), name, None, closure)


def _fill_function(function: types.FunctionType, state: tuple) -> None:
    attributes, cells, used, submodules = state
    for name in submodules:
        importlib.import_module(name)
    for name, value in attributes.items():
        setattr(function, name, value)
    for cell, value in zip(function.__closure__ or (), cells):
        if not (isinstance(value, str) and value == _EMPTY_CELL):
            cell.cell_contents = value
    function.__globals__.update(used)


def _reduce_class(cls: type) -> tuple:
    if issubclass(cls, enum.Enum):
        raise pickle.PicklingError(f"the enum {cls.__name__} cannot travel; put it into a module that workers can import")
    token = _tokens.setdefault(cls, uuid.uuid4().hex)
    _classes.setdefault(token, cls)
    skipped = (types.MemberDescriptorType, types.GetSetDescriptorType)
    state = {key: value for key, value in vars(cls).items()
             if key not in _OWN_ENTRIES and not isinstance(value, skipped)}
    head = {key: vars(cls)[key] for key in ("__slots__", "__qualname__", "__module__") if key in vars(cls)}
    return _make_class, (token, type(cls), cls.__name__, cls.__bases__, head), state, None, None, _fill_class


def _make_class(token: str, metaclass: type, name: str, bases: tuple, head: dict) -> type:
    known = _classes.get(token)
    if known is not None:
        return known
    made = types.new_class(name, bases, {"metaclass": metaclass}, lambda body: body.update(head))
    _tokens[made] = token
    _classes[token] = made
    return made


def _fill_class(cls: type, state: dict) -> None:
    for key, value in state.items():
        setattr(cls, key, value)
