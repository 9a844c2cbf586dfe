"""On-device benchmark of a bundle: `run` measures in a fresh process, `pixdraft bench` prints what it found."""

from pixdraft.runtime.benchmark.process import run
from pixdraft.runtime.benchmark.settings import Settings

__all__ = ["Settings", "run"]
