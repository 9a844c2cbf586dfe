"""What export refuses, in one sentence that ends with the mend.

```
ExportError   the export cannot be made as asked: a missing package, an unknown scheme, a folder that is there already
GateFailed    what was exported does not do what the model does; no bundle is written
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixdraft.export.gate.report import Report


class ExportError(ValueError):
    """The export cannot be made as asked; the message names the option, package or file and the mend."""


class GateFailed(RuntimeError):
    """The exported draft failed its gate; the message names the check, what was measured and the threshold.

    Attributes:
        report: every row.
    """

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report
