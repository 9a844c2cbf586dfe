"""pixdraft: a small image model on the device draws; a full model in the cloud is asked about the unsure tokens.

The folders beside this one are sub-packages: `pixdraft.decoding`, `pixdraft.runtime`, `pixdraft.cloud_stub` and so on.
This package itself is the command line.
"""

__version__ = "0.1.0"
