"""An interpreter of Core ML programs in numpy: runs a saved ``.mlpackage`` where there is no Core ML.

It reads the package by itself and needs no Core ML tools. What it says: that the program computes what the model does,
that states are kept and shared, what float16 and quantised weights cost. What it does not say: anything about a
phone's Neural Engine, its order of summation or its speed.
"""

from __future__ import annotations

from pixdraft.export.mil.interpreter import MilProgram, load_functions
from pixdraft.export.mil.package import STATE_WRITE, Package, count_operators, weight_bytes

__all__ = ["MilProgram", "load_functions", "Package", "count_operators", "weight_bytes", "STATE_WRITE"]
