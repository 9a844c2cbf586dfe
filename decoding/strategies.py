"""How the target draws by itself: one token a pass, or several by judging its own guesses of an earlier pass.

A strategy is a frozen, checked configuration that both sides read: the device asks for one by name, the cloud runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from pixdraft.decoding.coupling import COUPLINGS
from pixdraft.decoding.nearest import advice
from pixdraft.decoding.numbers import is_whole

MAX_WINDOW = 256
INITS = ("uniform-onehot", "left", "uniform")


class StrategyError(ValueError):
    """A strategy is unknown, or a parameter is; the message names it and says what would do."""


@dataclass(frozen=True)
class Strategy:
    """Base of every strategy.

    Attributes:
        name: its key in `STRATEGIES`.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Raise StrategyError where a field is out of range, and make whole numbers of whole floats."""

    def _whole(self, field: str, least: int, most: int) -> None:
        value: Any = getattr(self, field)
        if not is_whole(value, least, most):
            raise StrategyError(f"{self.name}: {field} is {value!r:.64}: give a whole number from {least} to {most}")
        object.__setattr__(self, field, int(value))

    @property
    def parameters(self) -> dict[str, Any]:
        """Its fields by name, as `create` takes them."""
        return asdict(self)


@dataclass(frozen=True)
class Sequential(Strategy):
    """One token a pass, drawn with the numbers of the target stream: what every other strategy is compared with."""

    name: ClassVar[str] = "sequential"


@dataclass(frozen=True)
class Jacobi(Strategy):
    """What the strategies share that guess a window of drafts and let the next pass judge them.

    Each pass covers the last settled token and `window - 1` drafts. From left to right drafts stand until one falls,
    and the target's own token takes its place; behind it every position is drawn again from what this pass says, and
    free places at the end of the window are filled.

    Attributes:
        window: W, positions of one pass, 1 to 256; 1 draws one token a pass.
        init: what fills a free place.
            "uniform-onehot": a uniformly drawn code, taken for certain: p is one-hot.
            "left": the code to its left in reading order, taken for certain; a picture's first is uniformly drawn.
            "uniform": a uniformly drawn code with p = 1 / V, as in CSD's published code.
        coupling: how a draft that is drawn again keeps to what it was, by name in `coupling.COUPLINGS`.
    """

    window: int = 16
    init: str = INITS[0]
    coupling: str = "none"
    couplings: ClassVar[tuple[str, ...]] = tuple(COUPLINGS)

    def __post_init__(self) -> None:
        self._whole("window", 1, MAX_WINDOW)
        for field, known in (("init", INITS), ("coupling", self.couplings)):
            if (value := getattr(self, field)) not in known:
                raise StrategyError(f"{self.name}: {field} is {value!r:.64}: the known ones are {', '.join(known)}")


@dataclass(frozen=True)
class SJD(Jacobi):
    """Speculative Jacobi decoding (arXiv 2410.01699): an acceptance rule judges each draft against what it came from.

    With the lossless rule the tokens are distributed as the target's own. The setting of CSD (arXiv 2606.27829) is
    this with its rule and the init "uniform"; that of SCD (arXiv 2510.24211) is this with a coupling.
    """

    name: ClassVar[str] = "sjd"


@dataclass(frozen=True)
class JD(Jacobi):
    """Jacobi decoding (Song et al., arXiv 2002.03629): a draft stands if the target draws the same code there.

    The target draws with the numbers of its own stream, so the picture is the sequential one of the same seed, token
    for token, whatever the drafts. No acceptance rule is asked, and what p an init stands for makes no difference.

    The coupling "none" draws drafts with numbers of their own, as the published comparisons do; "common" with those
    that the target will draw with, so that the passes go to a fixed point.
    """

    name: ClassVar[str] = "jd"
    couplings: ClassVar[tuple[str, ...]] = ("none", "common")


@dataclass(frozen=True)
class EAGLE2(Strategy):
    """EAGLE-2 (arXiv 2406.16858): a small drafter beside the target guesses trees, one pass of the target judges each.

    With the lossless rule the tokens are distributed as the target's own; with `lantern` or `lantern++` it is LANTERN
    (arXiv 2410.03355, 2502.06352). The target must have a drafter. See `decoding.tree`.

    Attributes:
        total_tokens: nodes of a tree, the root among them, 2 to 256.
        depth: rounds of growth after the first guesses, 0 to 16; a tree is at most one position deeper.
        top_k: guesses that a round expands, and codes that each gets, 1 to 64. Not the top-k of the sampling.
    """

    total_tokens: int = 59
    depth: int = 4
    top_k: int = 10
    name: ClassVar[str] = "eagle2"

    def __post_init__(self) -> None:
        self._whole("total_tokens", 2, MAX_WINDOW)
        self._whole("depth", 0, 16)
        self._whole("top_k", 1, 64)


STRATEGIES: dict[str, type[Strategy]] = {strategy.name: strategy for strategy in (Sequential, JD, SJD, EAGLE2)}


def create(name: str, parameters: Mapping[str, Any] | None = None) -> Strategy:
    """Build a strategy from its name in `STRATEGIES` and its parameters; what is left out takes its default.

    Raises:
        StrategyError: the strategy or a parameter is unknown, or a value is out of range.
    """
    if (strategy := STRATEGIES.get(name)) is None:
        raise StrategyError(f"there is no strategy {name[:64]!r}: the known ones are {', '.join(STRATEGIES)}")
    given, known = dict(parameters or {}), [f.name for f in fields(strategy)]
    if unknown := sorted(set(given) - set(known)):
        takes = f"takes {', '.join(known)}" if known else "takes none"
        hint = advice(unknown[0], known)
        raise StrategyError(f"{name}: there is no parameter {unknown[0][:64]!r}; {hint}the strategy {takes}")
    return strategy(**given)
