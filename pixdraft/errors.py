"""From an exception to one sentence and an exit code: 2 for the user's mistake, 1 for a failure."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import typer

MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130

# A refusal with one of these codes is about what the user asked for (protocol/frames.py, `Failure`).
_CODES_OF_THE_REQUEST = frozenset({"prompt", "request"})
_EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "prometheus_client": "cloud",
    "resvg_py": "train",
    "efficientnet_lite_pytorch": "evaluate",
    "onnxruntime": "onnx",
    "executorch": "executorch",
    "coremltools": "coreml",
    "onnx": "export",
    "onnx_ir": "export",
    "onnxscript": "export",
    "optimum": "export",
    "packaging": "export",
    "torchao": "export",
    "transformers": "export",
}


def explain(error: BaseException) -> tuple[int, str]:
    """Exit code and sentence of an error.

    What pixdraft raises itself is a sentence already: a ValueError of ours is the user's mistake, anything else of
    ours a failure. What nobody foresaw says so, and where to look.
    """
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED, "interrupted"
    if isinstance(error, typer.TyperException):
        return error.exit_code, error.format_message()
    if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get((error.name or "").partition(".")[0])):
        return FAILURE, f"{error.name} is not installed: run pip install 'pixdraft[{extra}]'"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return MISTAKE, f"{error.filename}: {error.strerror.lower()}"
    if _is_ours(error):
        about_the_request = getattr(error, "code", None) in _CODES_OF_THE_REQUEST
        mistake = about_the_request or isinstance(error, ValueError | FileNotFoundError)
        return (MISTAKE if mistake else FAILURE), str(error)
    return FAILURE, f"{type(error).__name__}: {error} (unforeseen; pixdraft --debug shows where)"


def _is_ours(error: BaseException) -> bool:
    """Whether the class of an error, or the line that raised it, is pixdraft's."""
    if type(error).__module__.startswith("pixdraft."):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith("pixdraft.")


def bounded(run: Callable[[], object], *, debug: bool) -> int:
    """Call `run`; an error becomes a line on stderr and an exit code (`debug`: the traceback stands before it)."""
    try:
        code = run()
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exception(error)
        code, sentence = explain(error)
        print(f"pixdraft: {sentence}", file=sys.stderr)
        return code
    return code if isinstance(code, int) else 0
