"""What a benchmark repeats, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from pixdraft.runtime.errors import RequestError


@dataclass(frozen=True)
class Settings:
    """Settings of one benchmark.

    Attributes:
        threads: of the backend.
        warmup: passes before anything is counted.
        repeats: samples of a step at each position, of a block and of opening a picture.
        pictures: whole pictures drawn by the device alone; also the samples of the decoder and of warm loading.
        block: rows of a block pass.
    """

    threads: int = 1
    warmup: int = 10
    repeats: int = 100
    pictures: int = 3
    block: int = 8

    def __post_init__(self) -> None:
        for name, least in (("threads", 1), ("warmup", 0), ("repeats", 2), ("pictures", 1), ("block", 2)):
            if (value := getattr(self, name)) < least:
                raise RequestError(f"{name} is {value}: give at least {least}")
