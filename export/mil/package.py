"""A saved ``.mlpackage`` as a program: functions, states and operations, read from the files that a phone loads."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pixdraft.export.errors import ExportError
from pixdraft.export.mil.values import Constant, TensorType
from pixdraft.export.mil.wire import Message, WireError

STATE_WRITE = "coreml_update_state"
"""What coremltools calls the operation that stands as ``write_state`` in the file."""

_ML_PROGRAM = 502


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        kind: the operator.
        name: as coremltools gave it.
        inputs: by parameter: names of values, or constants.
        outputs: names and types of the values that it makes.
        blocks: whether it holds other operations, as control flow does.
    """

    kind: str
    name: str
    inputs: dict[str, tuple[str | Constant, ...]]
    outputs: tuple[tuple[str, TensorType], ...]
    blocks: bool


@dataclass(frozen=True)
class Function:
    """One entry point.

    Attributes:
        inputs, states: types by name.
        outputs: names of the values that it returns.
        operations: in the order of the file, which is one of their dependences.
    """

    inputs: dict[str, TensorType]
    states: dict[str, TensorType]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Package:
    """A package's program.

    Attributes:
        path: of the package.
        default: name of the function that runs when none is named.
        functions: by name.
    """

    path: Path
    default: str
    functions: dict[str, Function]

    def function(self, name: str | None = None) -> Function:
        """A function, by default the default one.

        Raises:
            ExportError: there is none of this name.
        """
        wanted = self.default if name is None else name
        if wanted not in self.functions:
            raise ExportError(f"{self.path} has no function {wanted!r}: choose one of {', '.join(self.functions)}")
        return self.functions[wanted]

    @classmethod
    def read(cls, path: str | Path) -> Package:
        """Read a package.

        Raises:
            ExportError: it is none, it is damaged, or it holds a model of another kind than an ML program.
        """
        path = Path(path)
        model = _model_file(path)
        try:
            content = Message(model.read_bytes())
            if not content.has(_ML_PROGRAM):
                raise ExportError(f"{path} holds no ML program: convert with minimum_deployment_target iOS 18")
            functions = {
                name: _function(function, model.parent)
                for name, function in content.message(_ML_PROGRAM).entries(2).items()
            }
        except (OSError, WireError, UnicodeDecodeError) as error:
            raise ExportError(f"{model} is damaged ({error}): export the package again") from error
        default = content.message(2).text(21)
        return cls(path, default if default in functions else next(iter(functions), "main"), functions)


def _model_file(path: Path) -> Path:
    try:
        manifest = json.loads((path / "Manifest.json").read_text(encoding="utf-8"))
        root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{path} is no Core ML package ({error}): name a folder that ends in .mlpackage") from error
    return path / "Data" / str(root)


def _function(message: Message, folder: Path) -> Function:
    inputs: dict[str, TensorType] = {}
    states: dict[str, TensorType] = {}
    for named in message.messages(1):
        (states if named.message(2).has(5) else inputs)[named.text(1)] = TensorType.read(named.message(2))
    block = message.entries(3)[message.text(2)]
    operations = tuple(_operation(operation, folder) for operation in block.messages(3))
    return Function(inputs, states, tuple(block.texts(2)), operations)


def _operation(message: Message, folder: Path) -> Operation:
    # Constants and compressed weights of older programs keep their values as attributes, not as inputs.
    attributes = message.entries(5)
    inputs: dict[str, tuple[str | Constant, ...]] = {
        name: (Constant.read(value, folder),) for name, value in attributes.items() if name != "name"
    }
    for name, argument in message.entries(2).items():
        inputs[name] = tuple(
            binding.text(1) if binding.has(1) else Constant.read(binding.message(2), folder)
            for binding in argument.messages(1)
        )
    label = Constant.read(attributes["name"], folder).value() if "name" in attributes else ""
    outputs = tuple((output.text(1), TensorType.read(output.message(2))) for output in message.messages(3))
    kind = message.text(1)
    return Operation(STATE_WRITE if kind == "write_state" else kind, str(label), inputs, outputs, message.has(4))


def count_operators(path: str | Path) -> dict[str, Counter[str]]:
    """How often each operator stands in each function of a package, constants left out.

    A draft must hold `STATE_WRITE` twice a layer: converters are known to drop writes of a cache without a word.
    """
    return {
        name: Counter(operation.kind for operation in function.operations if operation.kind != "const")
        for name, function in Package.read(path).functions.items()
    }


def weight_bytes(path: str | Path, function: str | None = None) -> int:
    """Bytes of the weights that a function refers to, as they are stored; what several operations share counts once."""
    found = {
        value.content: value.size()
        for operation in Package.read(path).function(function).operations
        for values in operation.inputs.values()
        for value in values
        if isinstance(value, Constant) and not isinstance(value.content, bytes)
    }
    return sum(found.values())
