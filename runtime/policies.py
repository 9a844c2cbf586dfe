"""Who decides a token: small objects that say, for each drafted token, keep it or ask the cloud.

A policy is a frozen, checked configuration; `judge` starts it on one picture. `create` builds one by name. To add one:
write the dataclass, put it into `POLICIES`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pixdraft.decoding import strategies
from pixdraft.decoding.nearest import advice
from pixdraft.decoding.numbers import is_number, is_whole
from pixdraft.decoding.statistics import STATISTICS, Evidence
from pixdraft.decoding.thresholds import Learner, ThresholdTable, Tracker, uniform
from pixdraft.protocol.frames import Strategy
from pixdraft.runtime.backends import DraftInfo
from pixdraft.runtime.errors import RequestError

DEFAULT_RATE = 0.30
KEPT_TEMPERATURE = 0.6
"""Of the draft under `ciar`: a small draft spreads its mass too widely, and nobody takes back what it draws from the
tail and keeps. A judged token needs no such care; a draft that is all alone draws poorer pictures by it."""


def floor_share(share: float, total: int) -> int:
    """floor(share * total) as it is meant: 0.29 of 100 is 29, although the product is 28.999..."""
    return math.floor(share * total + 1e-9)


class Judgement(NamedTuple):
    """What a policy says of one drafted token.

    Attributes:
        ask: whether the cloud shall judge it; else the device keeps it.
        statistic, tau: what it looked at; None where it looks at nothing.
    """

    ask: bool
    statistic: float | None = None
    tau: float | None = None


Judge = Callable[[Evidence], Judgement]


@dataclass(frozen=True)
class Policy(ABC):
    """Base of every policy.

    Attributes:
        name: its key in `POLICIES`.
        streams: the target draws tokens by itself, see `streamed`; the draft steps in where the cloud is lost.
        silent: nothing is asked once the session is open and what is streamed has come.
        keeps: tokens may stand that no rule has judged, so the draft must fit the guidance that is asked for.
        draft_temperature: of the draft's distribution, where a request gives none.
        ruled: the request's rule judges something: what the device asks, or the target's own guesses.
        injects: whether a prefix of the target's makes sense, and how much of the picture by default.
        block: asked tokens that one frame carries.
    """

    name: ClassVar[str]
    streams: ClassVar[bool] = False
    silent: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    ruled: ClassVar[bool] = False
    injects: ClassVar[bool] = False
    default_rho: ClassVar[float] = 0.0
    draft_temperature: ClassVar[float] = 1.0

    @property
    def block(self) -> int:
        """Asked tokens that one frame carries."""
        return 1

    @property
    def strategy(self) -> Strategy:
        """How the target draws where it streams."""
        return Strategy()

    def streamed(self, image_tokens: int) -> int:
        """Of the picture's tokens, how many from the first on the target draws by itself and streams."""
        return image_tokens if self.streams else 0

    def fitted(self, info: DraftInfo) -> Policy:
        """This policy with what it leaves to the draft filled in, as a trace should say it.

        Raises:
            RequestError: the draft has not what the policy needs.
        """
        return self

    @abstractmethod
    def judge(self, info: DraftInfo) -> Judge:
        """Begin a picture: a function of each drafted token's evidence, called in the order of drafting.

        Raises:
            RequestError: the draft has not what the policy needs.
        """


@dataclass(frozen=True)
class CloudPolicy(Policy):
    """The target draws everything and streams it: what every other policy is compared with."""

    name = "cloud"
    streams = True

    def judge(self, info: DraftInfo) -> Judge:
        """Asks always."""
        return lambda _: Judgement(True)


class _StrategyPolicy(CloudPolicy, strategies.Strategy):
    """The target draws everything by a strategy of `decoding.strategies`, which this is at the same time."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except strategies.StrategyError as error:
            raise RequestError(str(error)) from error

    @property
    def strategy(self) -> Strategy:
        """This strategy, as the wire has it."""
        return Strategy(self.name, self.parameters)


@dataclass(frozen=True)
class SjdPolicy(_StrategyPolicy, strategies.SJD):
    """Speculative Jacobi decoding at the cloud: fewer passes of the target; the request's rule judges its guesses.

    Guesses begin anew where a broken stream is taken up: then, and only then, the same request draws another picture.
    """

    name = "sjd"
    ruled = True


@dataclass(frozen=True)
class JdPolicy(_StrategyPolicy, strategies.JD):
    """Jacobi decoding at the cloud: the picture of the policy `cloud`, in fewer passes."""

    name = "jd"


@dataclass(frozen=True)
class Eagle2Policy(_StrategyPolicy, strategies.EAGLE2):
    """EAGLE-2 at the cloud: a drafter beside the target guesses trees, the request's rule judges them.

    The cloud refuses where its model has no drafter.
    """

    name = "eagle2"
    ruled = True


@dataclass(frozen=True)
class DevicePolicy(Policy):
    """The device draws everything; of the cloud it takes the condition and no more."""

    name = "device"
    silent = True
    keeps = True

    def judge(self, info: DraftInfo) -> Judge:
        """Keeps always."""
        return lambda _: Judgement(False)


@dataclass(frozen=True)
class CodePolicy(Policy):
    """CoDe (arXiv 2411.17787) as CIAR compares with it: the target draws the first tokens, the device all the rest.

    Nothing of the device's is judged. The paper's models work on scales of a picture; on tokens in reading order its
    split is this one.

    Attributes:
        share: N, of the tokens, that the target draws: the first floor(N T), at least 0 and below 1.
    """

    name = "code"
    streams = True
    silent = True
    keeps = True
    share: float = 0.30

    def __post_init__(self) -> None:
        if not (is_number(self.share) and 0 <= self.share < 1):
            raise RequestError(f"share is {self.share!r}: give what the cloud draws first, at least 0 and below 1")

    def streamed(self, image_tokens: int) -> int:
        """Floor(N T)."""
        return floor_share(self.share, image_tokens)

    def judge(self, info: DraftInfo) -> Judge:
        """Asks where the target should have drawn, which happens only where the cloud is lost."""
        first = self.streamed(info.image_tokens)
        return lambda evidence: Judgement(bool(np.asarray(evidence.position) < first))


@dataclass(frozen=True)
class SpeculativePolicy(Policy):
    """Speculative sampling (arXiv 2211.17192): every token is asked, `gamma` of them (1 to 256) in one frame."""

    name = "speculative"
    ruled = True
    injects = True
    gamma: int = 4

    def __post_init__(self) -> None:
        most = strategies.MAX_WINDOW  # a block is judged in one pass of the target, as a window is
        if not is_whole(self.gamma, 1, most):
            raise RequestError(
                f"gamma is {self.gamma!r:.64}: give the tokens of a block, a whole number from 1 to {most}"
            )
        object.__setattr__(self, "gamma", int(self.gamma))

    @property
    def block(self) -> int:
        """Gamma."""
        return self.gamma

    def judge(self, info: DraftInfo) -> Judge:
        """Asks always."""
        return lambda _: Judgement(True)


@dataclass(frozen=True)
class CiarPolicy(Policy):
    """CIAR (arXiv 2603.25463): keep a token whose uncertainty is below tau, ask about it else.

    Attributes:
        statistic: a name in `decoding.statistics.STATISTICS`; None takes the one the draft was calibrated for.
        tau: a fixed threshold; 0 asks everything, since no statistic is negative.
        rate: the share of tokens to ask instead, 0..1: tau starts at the draft's table and is steered from there; a
            draft that was calibrated without this statistic has none, and tau is learned from the picture as it goes.
            Neither given: 0.30.
        eta: speed of the steering; 0 holds the table's tau.
    """

    name = "ciar"
    keeps = True
    ruled = True
    injects = True
    default_rho = 0.06
    draft_temperature = KEPT_TEMPERATURE
    statistic: str | None = None
    tau: float | None = None
    rate: float | None = None
    eta: float = 0.05

    def __post_init__(self) -> None:
        if self.statistic is not None and self.statistic not in STATISTICS:
            raise RequestError(f"there is no statistic {self.statistic!r}: the known ones are {', '.join(STATISTICS)}")
        if self.tau is not None and self.rate is not None:
            raise RequestError("tau and rate are both given: give the threshold, or the share to ask, not both")
        if self.tau is not None and not (is_number(self.tau) and self.tau >= 0):
            raise RequestError(f"tau is {self.tau!r}: give a threshold of at least 0, where 0 asks everything")
        if self.rate is not None and not (is_number(self.rate) and 0 <= self.rate <= 1):
            raise RequestError(f"rate is {self.rate!r}: give a share from 0 (ask never) to 1 (ask always)")
        if not (is_number(self.eta) and 0 <= self.eta < math.inf):
            raise RequestError(f"eta is {self.eta!r}: give a finite number of at least 0, where 0 holds tau")

    def fitted(self, info: DraftInfo) -> CiarPolicy:
        """With the draft's statistic, and a rate where neither tau nor rate is given."""
        return replace(self, statistic=self._name(info), rate=self._rate if self.tau is None else None)

    def judge(self, info: DraftInfo) -> Judge:
        """Asks where statistic >= tau."""
        statistic = STATISTICS[self._name(info)]
        if (tau := self.tau) is not None:

            def fixed(evidence: Evidence) -> Judgement:
                value = float(statistic(evidence))
                return Judgement(value >= tau, value, tau)

            return fixed
        tracker = self._tracker(info)

        def tracked(evidence: Evidence) -> Judgement:
            value, tau = float(statistic(evidence)), tracker.tau
            return Judgement(tracker.update(value), value, tau)

        return tracked

    @property
    def _rate(self) -> float:
        return DEFAULT_RATE if self.rate is None else self.rate

    def _name(self, info: DraftInfo) -> str:
        name = self.statistic or info.statistic
        if name not in STATISTICS:
            raise RequestError(f"the draft {info.name!r} names the unknown statistic {name!r}: give statistic by hand")
        return name

    def _tracker(self, info: DraftInfo) -> Tracker:
        name = self._name(info)
        if name == "random":  # of which no draft is needed to know the quantiles
            return Tracker(uniform(name), self._rate, self.eta)
        if pairs := info.thresholds.get(name):
            return Tracker(ThresholdTable(name, tuple((rate, tau) for rate, tau in pairs)), self._rate, self.eta)
        return Learner(name, self._rate, self.eta)


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        CloudPolicy,
        JdPolicy,
        SjdPolicy,
        Eagle2Policy,
        DevicePolicy,
        CodePolicy,
        SpeculativePolicy,
        CiarPolicy,
    )
}


def create(name: str, **parameters: Any) -> Policy:
    """Build a policy from its name in `POLICIES`; parameters of None are left to their defaults.

    Raises:
        RequestError: the policy or a parameter is unknown, or a value is out of range.
    """
    if (policy := POLICIES.get(name)) is None:
        raise RequestError(f"there is no policy {name!r}: the known ones are {', '.join(POLICIES)}")
    given = {key: value for key, value in parameters.items() if value is not None}
    known = [f.name for f in fields(policy)]
    if unknown := [key for key in given if key not in known]:
        takes = f"takes {', '.join(known)}" if known else "takes none"
        hint = advice(unknown[0], known, "leave it out, ")
        raise RequestError(f"the policy {name!r} has no parameter {unknown[0]!r}: {hint}the policy {takes}")
    return policy(**given)
