"""What export refuses, in one sentence that ends with the mend.

```
ExportError           the export cannot be made: a missing package, an unknown scheme, a folder that is there already
└── GateFailed        what was exported does not do what the model does; no bundle is written
```
"""

from __future__ import annotations


class ExportError(ValueError):
    """The export cannot be made as asked; the message names the option, package or file and the mend."""


class GateFailed(RuntimeError):
    """The exported draft failed its parity gate; the message names the check, what was measured and the threshold."""
