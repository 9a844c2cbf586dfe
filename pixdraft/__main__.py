"""``python -m pixdraft``."""

from pixdraft.cli import main

main()
