"""Runs a package's functions in numpy, on any system: what the program computes, not how fast a phone computes it.

A program is prepared once: constants are read and decompressed, everything that follows from constants alone is
computed, and each value is dropped after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import pixdraft.export.mil.operators  # noqa: F401  fills OPERATORS
from pixdraft.export.errors import ExportError
from pixdraft.export.mil.package import STATE_WRITE, Function, Operation, Package
from pixdraft.export.mil.registry import OPERATORS, Operator
from pixdraft.export.mil.values import UNKNOWN, Array, Constant, TensorType

_STATE_READ = "read_state"
_HANDLED = {"const", _STATE_READ, STATE_WRITE}

State = dict[str, Array]


class _Known:
    """A value that follows from constants alone, computed when it is asked for.

    Args:
        key: tells it from every other one of the package.
        make: computes it.
    """

    def __init__(self, key: Hashable, make: Callable[[], Any]) -> None:
        self.key, self.make = key, make


@dataclass(frozen=True)
class _Step:
    """One operation of a prepared program.

    Attributes:
        run: takes all inputs by name.
        constants: those that are known.
        variables: names of the values that are not.
        lists: names or arrays where a parameter takes a list.
        outputs: names and types of the results.
        rounds: whether float16 results are still to be rounded.
        done: values that nothing uses later.
    """

    run: Callable[..., Any]
    constants: dict[str, Any]
    variables: dict[str, str]
    lists: dict[str, tuple[str | Array, ...]]
    outputs: tuple[tuple[str, TensorType], ...]
    rounds: bool
    done: tuple[str, ...] = ()


class MilProgram:
    """One function of a package, ready to run.

    Args:
        path: of the package, or the package itself where several functions share its constants.
        function: its name; by default the package's default function.
        half: round every float16 result to float16, as a phone does; without it, only the weights are rounded.
        state: the state to use; by default a new one of zeros. Give two functions of one package the same.

    Raises:
        ExportError: the package cannot be read, has no such function, or uses operators that the interpreter does not
            know; all of them are named.

    Attributes:
        state: arrays by name; float16 states are held as float32.
    """

    def __init__(
        self,
        path: str | Path | Package,
        function: str | None = None,
        *,
        half: bool = False,
        state: State | None = None,
        shared: dict[Hashable, Any] | None = None,
    ) -> None:
        self.package = path if isinstance(path, Package) else Package.read(path)
        self.function: Function = self.package.function(function)
        self.half = half
        self.state: State = {} if state is None else state
        for name, kind in self.function.states.items():
            self.state.setdefault(name, np.zeros(kind.shape, kind.dtype))
        _refuse_unknown(self.package)
        self._shared = {} if shared is None else shared
        self._ready: dict[str, Any] = {}
        self._steps = self._prepare()

    def reset(self) -> None:
        """Set the function's states to zeros."""
        for name, kind in self.function.states.items():
            self.state[name] = np.zeros(kind.shape, kind.dtype)

    def run(self, **inputs: Any) -> dict[str, Array]:
        """Run the function once.

        Args:
            inputs: all of its inputs by name.

        Returns:
            Its outputs by name.

        Raises:
            ExportError: an input is missing, unknown or of another shape than the program's.
        """
        values = dict(self._ready) | self._checked(inputs)
        # Overflow and what follows from it is the program's own affair: it shows in the outputs, as on a phone.
        with np.errstate(all="ignore"):
            for step in self._steps:
                given = step.constants | {name: values[value] for name, value in step.variables.items()}
                for name, parts in step.lists.items():
                    given[name] = [values[part] if isinstance(part, str) else part for part in parts]
                results = step.run(**given)
                if len(step.outputs) == 1 and not isinstance(results, tuple):
                    name, kind = step.outputs[0]
                    values[name] = self._settled(results, kind, step.rounds)
                else:
                    for (name, kind), result in zip(step.outputs, results, strict=False):
                        values[name] = self._settled(result, kind, step.rounds)
                for name in step.done:
                    del values[name]
        return {name: values[name] for name in self.function.outputs}

    def _checked(self, inputs: dict[str, Any]) -> dict[str, Array]:
        expected = self.function.inputs
        if wrong := sorted(set(inputs) ^ set(expected)):
            raise ExportError(f"{self.package.path} takes the inputs {', '.join(expected)}: {wrong[0]} does not fit")
        values = {}
        for name, kind in expected.items():
            value = np.array(inputs[name])
            sizes = zip(value.shape, kind.shape, strict=False)
            if value.ndim != len(kind.shape) or any(size not in (UNKNOWN, given) for given, size in sizes):
                raise ExportError(
                    f"{self.package.path}: the input {name} has the shape {value.shape}: give one of {kind.shape}"
                )
            values[name] = self._settled(value, kind)
        return values

    def _settled(self, value: Any, kind: TensorType, rounds: bool = True) -> Array:
        """A result in the type that the program states for it."""
        if rounds and self.half and kind.kind == "FLOAT16":
            return np.asarray(value, np.float16).astype(np.float32)
        return np.asarray(value, kind.dtype)

    def _prepare(self) -> tuple[_Step, ...]:
        known: dict[str, _Known] = {}
        steps = []
        for operation in self.function.operations:
            if operation.kind == "const":
                known[operation.outputs[0][0]] = _constant(_single(operation, "val"))
            elif operation.kind not in _HANDLED and self._foldable(operation, known):
                known[operation.outputs[0][0]] = self._fold(operation, known)
            else:
                steps.append(self._step(operation, known))
        self._ready = {name: self._value(known[name]) for name in self.function.outputs if name in known}
        return _with_last_uses(steps, self.function.outputs)

    def _foldable(self, operation: Operation, known: dict[str, _Known]) -> bool:
        names = [value for values in operation.inputs.values() for value in values if isinstance(value, str)]
        return len(operation.outputs) == 1 and all(name in known for name in names)

    def _fold(self, operation: Operation, known: dict[str, _Known]) -> _Known:
        entry = OPERATORS[operation.kind]
        given = {
            name: tuple(known[value] if isinstance(value, str) else _constant(value) for value in values)
            for name, values in operation.inputs.items()
        }
        kind = operation.outputs[0][1]

        def make() -> Any:
            made = {name: [value.make() for value in values] for name, values in given.items()}
            arguments = {name: values if name in entry.many else values[0] for name, values in made.items()}
            with np.errstate(all="ignore"):
                result = entry.function(**arguments)
            return self._settled(result, kind)

        keys = tuple(sorted((name, tuple(value.key for value in values)) for name, values in given.items()))
        return _Known((operation.kind, kind, keys), make)

    def _step(self, operation: Operation, known: dict[str, _Known]) -> _Step:
        constants: dict[str, Any] = {}
        variables: dict[str, str] = {}
        lists: dict[str, tuple[str | Array, ...]] = {}
        if operation.kind == _STATE_READ:
            entry, inputs = Operator(self._reader(operation), moves=True), {}
        elif operation.kind == STATE_WRITE:
            entry, inputs = Operator(self._writer(operation)), {"data": operation.inputs["data"]}
        else:
            entry, inputs = OPERATORS[operation.kind], operation.inputs
        for name, values in inputs.items():
            found = tuple(self._resolved(value, known) for value in values)
            if name in entry.many:
                lists[name] = found
            elif isinstance(values[0], str) and values[0] not in known:
                variables[name] = values[0]
            else:
                constants[name] = found[0]
        return _Step(entry.function, constants, variables, lists, operation.outputs, not entry.moves)

    def _resolved(self, value: str | Constant, known: dict[str, _Known]) -> Any:
        """The name of a value that is not known, or the value."""
        if isinstance(value, Constant):
            return self._value(_constant(value))
        return self._value(known[value]) if value in known else value

    def _value(self, known: _Known) -> Any:
        """Constants are kept once for all functions of a package; half-precision ones by themselves."""
        key = (self.half, known.key)
        if key not in self._shared:
            self._shared[key] = known.make()
        return self._shared[key]

    def _reader(self, operation: Operation) -> Callable[..., Array]:
        name = _state(operation, "input")
        return lambda: self.state[name]

    def _writer(self, operation: Operation) -> Callable[..., tuple[()]]:
        name = _state(operation, "input")

        def write(data: Array) -> tuple[()]:
            self.state[name] = data
            return ()

        return write


def load_functions(path: str | Path, half: bool = False) -> dict[str, MilProgram]:
    """All functions of a package over one state, which start from zeros; `half` as `MilProgram` has it.

    Raises:
        ExportError: as `MilProgram`.
    """
    package = Package.read(path)
    state: State = {}
    shared: dict[Hashable, Any] = {}
    return {
        name: MilProgram(package, name, half=half, state=state, shared=shared) for name in sorted(package.functions)
    }


def _refuse_unknown(package: Package) -> None:
    operations = [operation for function in package.functions.values() for operation in function.operations]
    unknown = {o.kind for o in operations if (o.kind not in OPERATORS and o.kind not in _HANDLED) or o.blocks}
    if unknown:
        raise ExportError(
            f"{package.path} uses operators that the interpreter does not know: {', '.join(sorted(unknown))}: "
            "enter them in export/mil/operators"
        )


def _constant(constant: Constant) -> _Known:
    return _Known((constant.type, constant.content), constant.value)


def _single(operation: Operation, name: str) -> Constant:
    value = operation.inputs[name][0]
    if not isinstance(value, Constant):
        raise ExportError(f"the constant {operation.outputs[0][0]} names another value: export the package again")
    return value


def _state(operation: Operation, name: str) -> str:
    value = operation.inputs[name][0]
    if not isinstance(value, str):
        raise ExportError(f"the operation {operation.name} names no state: export the package again")
    return value


def _uses(step: _Step) -> Iterable[str]:
    yield from step.variables.values()
    for parts in step.lists.values():
        yield from (part for part in parts if isinstance(part, str))


def _with_last_uses(steps: list[_Step], outputs: tuple[str, ...]) -> tuple[_Step, ...]:
    """Steps with what each is the last to need; results that nothing needs are dropped at once."""
    kept = set(outputs)
    marked = []
    for step in reversed(steps):
        seen = {*_uses(step), *(name for name, _ in step.outputs)}
        done = tuple(sorted(seen - kept))
        kept |= seen
        marked.append(replace(step, done=done))
    return tuple(reversed(marked))
