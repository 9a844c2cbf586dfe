"""A bundle's ONNX models run by ONNX Runtime's CPU provider; it needs onnxruntime and numpy, nothing more.

All arrays of a pass are bound once for each number of rows, and the cache as past and present at a time: ONNX Runtime
then writes keys and values in place, and a step copies nothing.
"""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.runtime.backends import DraftOutput
from pixdraft.runtime.backends.exported import Seconds
from pixdraft.runtime.errors import BundleError
from pixdraft.runtime.manifest import NAME, Manifest, Shapes

PROVIDER = "CPUExecutionProvider"

_TYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
_Values = dict[str, tuple[str, list[int | str]]]
"""Type and shape by name, of a model's inputs and outputs."""

HEAD_STEP = 16
"""GroupQueryAttention turns heads of such widths only; a draft's others are filled up with zeros."""
_KEPT_ROWS = 16  # passes of up to so many rows come again and again; the arrays of longer ones are given back


class OnnxEngine:
    """Implements `pixdraft.runtime.backends.exported.Engine`.

    Args:
        draft, decoder: sessions of the two models; `pixdraft.export.exporters.onnx_graph` tells their inputs.
        slots: of the cache.

    Raises:
        BundleError: the draft's model keeps no cache.
    """

    sizes: tuple[int, ...] = ()

    def __init__(self, draft: Any, decoder: Any, slots: int) -> None:
        import onnxruntime

        self.ran: dict[str, Any] = {
            "engine": "ONNX Runtime",
            "version": onnxruntime.__version__,
            "providers": draft.get_providers(),
            "threads": draft.get_session_options().intra_op_num_threads,
        }
        self._draft = draft
        self._decoder = decoder
        self._slots = slots
        self._cache = {
            value.name: _held({"slots": slots}, value)[1]
            for value in draft.get_inputs()
            if value.name.startswith("past_")
        }
        if not self._cache:
            raise BundleError("the draft's model takes no keys and values, so it forgets them: export the bundle again")
        self._passes: dict[int, _Pass] = {}

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        rows = len(x)
        if (bound := self._passes.get(rows)) is None:
            bound = _Pass(self._draft, {"rows": rows, "slots": self._slots}, self._cache)
            if rows <= _KEPT_ROWS:
                self._passes[rows] = bound
        bound.x[0] = x
        bound.last[0] = slot + rows - 1
        bound.length[()] = slot + rows
        bound.places.fill(place)
        if rows > 1:
            bound.places += bound.steps
        try:
            self._draft.run_with_iobinding(bound.binding)
        except _refusals() as error:
            raise _refused("the draft", error) from error
        return bound.output

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        try:
            pixels: NDArray[np.float32] = self._decoder.run(None, {"tokens": tokens[None]})[0]
        except _refusals() as error:
            raise _refused("the decoder", error) from error
        return pixels


class _Pass:
    """The arrays of one number of rows, bound to the draft's session."""

    def __init__(self, session: Any, sizes: dict[str, int], cache: dict[str, Any]) -> None:
        self.binding = session.io_binding()
        self._values: list[Any] = []  # views of the arrays, which the binding only points to
        inputs = self._bind(session.get_inputs(), self.binding.bind_ortvalue_input, sizes, cache)
        outputs = self._bind(session.get_outputs(), self.binding.bind_ortvalue_output, sizes, cache)
        self.x, self.last, self.length, self.places = (inputs[name] for name in ("x", "last", "length", "places"))
        self.steps = np.arange(sizes["rows"])[None]
        self.output = DraftOutput(*(outputs[name] for name in DraftOutput._fields))

    def _bind(self, values: Any, bind: Any, sizes: dict[str, int], cache: dict[str, Any]) -> dict[str, NDArray[Any]]:
        arrays = {}
        for value in values:
            if (held := cache.get(value.name.replace("present_", "past_"))) is None:
                arrays[value.name], held = _held(sizes, value)
                self._values.append(held)
            bind(value.name, held)
        return arrays


def _held(sizes: dict[str, int], value: Any) -> tuple[NDArray[Any], Any]:
    """An array for an input or output, its free sizes as given, and ONNX Runtime's view of it."""
    from onnxruntime import OrtValue

    array = np.zeros([sizes.get(size, size) for size in value.shape], _TYPES[value.type])
    return array, OrtValue.ortvalue_from_numpy(array)


def open_engine(folder: Path, manifest: Manifest, threads: int = 1) -> OnnxEngine:
    """The engine of a bundle.

    Raises:
        BundleError: onnxruntime is missing, or it refuses a model.
    """
    engine = OnnxEngine(*_open_both(folder, manifest, threads), manifest.shapes.capacity)
    _warm(engine, manifest.shapes)
    return engine


def _warm(engine: OnnxEngine, shapes: Shapes) -> None:
    """Run one row: ONNX Runtime plans memory for the first number of rows only, and a step without takes 7 % longer."""
    engine.run(np.zeros((1, shapes.dim), np.float32), 0, 0)


def _open_both(folder: Path, manifest: Manifest, threads: int, profiles: Path | None = None) -> tuple[Any, Any]:
    """Sessions of draft and decoder, whose inputs and outputs are those of the manifest's shapes."""
    signatures = {manifest.draft: _draft_values(manifest.shapes), manifest.decoder: _decoder_values(manifest.shapes)}
    draft, decoder = (
        _fitting(folder / file, open_session(folder / file, threads, profiles and profiles / file), signature)
        for file, signature in signatures.items()
    )
    return draft, decoder


def _draft_values(shapes: Shapes) -> _Values:
    head = -(-shapes.dim // shapes.heads // HEAD_STEP) * HEAD_STEP
    past: _Values = {
        f"{when}_{what}_{i}": ("tensor(float)", [1, shapes.heads, "slots", head])
        for when in ("past", "present")
        for what in ("keys", "values")
        for i in range(shapes.layers)
    }
    return past | {
        "x": ("tensor(float)", [1, "rows", shapes.dim]),
        "last": ("tensor(int32)", [1]),
        "length": ("tensor(int32)", []),
        "places": ("tensor(int64)", [1, "rows"]),
        "center": ("tensor(float)", ["rows", shapes.vocab_size]),
        "radius": ("tensor(float)", ["rows", shapes.vocab_size]),
        "feature": ("tensor(float)", ["rows", shapes.dim]),
        "risk": ("tensor(float)", ["rows"]),
        "message": ("tensor(float)", ["rows", shapes.bottleneck]),
    }


def _decoder_values(shapes: Shapes) -> _Values:
    side = shapes.picture_size
    return {"tokens": ("tensor(int64)", [1, shapes.image_tokens]), "pixels": ("tensor(float)", [3, side, side])}


def _fitting(path: Path, session: Any, wanted: _Values) -> Any:
    """The session, if its model's inputs and outputs are the wanted ones.

    Raises:
        BundleError: naming the first that is not.
    """
    found = {value.name: (value.type, value.shape) for value in (*session.get_inputs(), *session.get_outputs())}
    if other := sorted(name for name in found | wanted if found.get(name) != wanted.get(name)):
        name = other[0]
        held, meant = (" ".join(map(str, values[name])) if name in values else "none" for values in (found, wanted))
        raise BundleError(
            f"{path} does not fit {NAME}: its {name!r} is {held}, should be {meant}: export the bundle again"
        )
    return session


class TimedOnnxEngine(OnnxEngine):
    """Implements `pixdraft.runtime.backends.exported.Timed`, by ONNX Runtime's own profiles of the two sessions.

    Args:
        draft, decoder, slots: see `OnnxEngine`; the sessions write profiles.
        folder: of the profiles; it is removed with the engine.
    """

    def __init__(self, draft: Any, decoder: Any, slots: int, folder: tempfile.TemporaryDirectory[str]) -> None:
        super().__init__(draft, decoder, slots)
        self._folder = folder
        self._runs = {"draft": 0, "decoder": 0}
        self._cleared = dict(self._runs)

    def run(self, x: NDArray[np.float32], slot: int, place: int) -> DraftOutput:
        """See `Engine.run`."""
        self._runs["draft"] += 1
        return super().run(x, slot, place)

    def decode(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """See `Engine.decode`."""
        self._runs["decoder"] += 1
        return super().decode(tokens)

    def clear(self) -> None:
        """See `Timed.clear`."""
        self._cleared = dict(self._runs)

    def seconds(self) -> dict[str, Seconds]:
        """See `Timed.seconds`. ONNX Runtime counts whole microseconds: a short operator's time is too small."""
        found = {}
        for model, session in (("draft", self._draft), ("decoder", self._decoder)):
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
            found[model] = by_operator(events, self._cleared[model])
        self._folder.cleanup()
        return found


def by_operator(events: list[dict[str, Any]], skipped: int) -> Seconds:
    """Median seconds of a run by operator, from a profile of ONNX Runtime; its backend runs all of them.

    Args:
        events: of the profile.
        skipped: the first runs that do not count.
    """
    begun = sorted(event["ts"] for event in events if event["name"] == "model_run")[skipped:]
    times: dict[str, list[float]] = {}
    for event in events:
        run = bisect_right(begun, event["ts"]) - 1
        if run >= 0 and event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            times.setdefault(event["args"]["op_name"], [0.0] * len(begun))[run] += event["dur"] * 1e-6
    return {"delegated": {name: float(np.median(runs)) for name, runs in times.items()}, "left": {}}


def open_timed(folder: Path, manifest: Manifest, threads: int = 1) -> TimedOnnxEngine:
    """An engine that tells where its time goes.

    Raises:
        BundleError: see `open_engine`.
    """
    profiles = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    draft, decoder = _open_both(folder, manifest, threads, Path(profiles.name))
    engine = TimedOnnxEngine(draft, decoder, manifest.shapes.capacity, profiles)
    _warm(engine, manifest.shapes)
    return engine


def open_session(path: Path, threads: int = 1, profile: Path | None = None) -> Any:
    """ONNX Runtime's session of a model file.

    Args:
        path: of the file.
        threads: to compute with; the caller's is one of them.
        profile: how the name of a profile of all runs begins, if there shall be one.

    Raises:
        BundleError: onnxruntime is missing, or it refuses the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise BundleError(f"the bundle needs onnxruntime ({error}): pip install 'pixdraft[onnx]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; they are raised as well
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    try:
        return onnxruntime.InferenceSession(path, options, providers=[PROVIDER])
    except _refusals() as error:
        raise _refused(path, error) from error


def _refusals() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises; it has no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    return (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.InvalidProtobuf, errors.NoSuchFile,
            errors.NotImplemented, errors.RuntimeException)  # fmt: skip


def _refused(what: Path | str, error: Exception) -> BundleError:
    first = str(error).strip().splitlines()[0]
    return BundleError(f"ONNX Runtime cannot run {what} ({first}): export the bundle again")
