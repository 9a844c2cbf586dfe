"""What is to be drawn, and how: one frozen dataclass, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from pixdraft.decoding import acceptance, sampling
from pixdraft.decoding.numbers import is_whole
from pixdraft.protocol.frames import Rule, Sampling
from pixdraft.runtime.backends import DraftInfo
from pixdraft.runtime.errors import RequestError
from pixdraft.runtime.policies import CiarPolicy, Policy, floor_share

DRAFT_TOP_K = 64  # of the bundled model's 1,024: a ninth of the bytes up; mean TV from the target 0.561, not 0.557


@dataclass(frozen=True)
class DrawRequest:
    """One picture to draw.

    Attributes:
        prompt: the text.
        seed: of the counter RNG, 0 <= seed < 2**64; the same request and seed give the same picture.
        policy: who decides a token.
        rule: how the cloud judges asked tokens, and its own guesses where it draws by the policy `sjd` or `eagle2`;
            under the other policies nothing is judged, and only the lossless one is taken.
        sampling: guidance, temperature, top-k, top-p; None takes the guidance that the draft was trained for and
            leaves the rest alone.
        rho: share of the picture that the cloud draws first and injects, 0 <= rho < 1; None takes the policy's own.
        draft_top_k: codes that the draft distribution keeps, and sends where it asks; 0 keeps them all. Fewer make
            smaller frames; what is asked stays exact.
        draft_temperature: of what the draft draws from, on top of the sampling's: below 1 it draws what it is surer of.
            The target keeps its own; what is asked stays exact. None takes the policy's.
        conditioning: whether bottleneck features go up beside the tokens (f^I of ciar.md, section 3). They move the
            target's distribution a little, so None sends them only where the policy keeps tokens unjudged anyway.
        require_cloud: stop with CloudRequired where the cloud is lost, instead of finishing alone.
    """

    prompt: str
    seed: int = 0
    policy: Policy = field(default_factory=CiarPolicy)
    rule: Rule = field(default_factory=Rule)
    sampling: Sampling | None = None
    rho: float | None = None
    draft_top_k: int = DRAFT_TOP_K
    draft_temperature: float | None = None
    conditioning: bool | None = None
    require_cloud: bool = False

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise RequestError("prompt is empty: say what to draw")
        if not 0 <= self.seed < 1 << 64:
            raise RequestError(f"seed is {self.seed}: give a whole number of at least 0 and below 2**64")
        if not is_whole(self.draft_top_k, 0, sampling.MOST_CODES):
            raise RequestError(
                f"draft_top_k is {self.draft_top_k!r:.64}: give a whole number from 1 to {sampling.MOST_CODES}, or 0 "
                "to keep every code"
            )
        object.__setattr__(self, "draft_top_k", int(self.draft_top_k))
        if (drawn := self.draft_temperature) is not None and not 0 <= drawn <= sampling.MOST:
            raise RequestError(f"draft_temperature is {drawn}: give a number from 0 to {sampling.MOST:g}")
        if self.rho is not None and not 0 <= self.rho < 1:
            raise RequestError(f"rho is {self.rho}: give the share to inject, at least 0 and below 1")
        if self.rho and not self.policy.injects:
            raise RequestError(f"rho is {self.rho}, but the policy {self.policy.name!r} takes no prefix: leave rho out")
        self._check_rule()
        self._check_sampling()

    def _check_rule(self) -> None:
        if (rule := acceptance.RULES.get(self.rule.name)) is None or not rule.needs_codebook:
            try:
                acceptance.create(self.rule.name, self.rule.parameters)
            except ValueError as error:
                raise RequestError(f"rule: {error}") from error
        if self.rule != Rule() and not self.policy.ruled:
            raise RequestError(
                f"rule is {self.rule.name!r}, but under the policy {self.policy.name!r} no rule judges: leave rule out"
            )

    def _check_sampling(self) -> None:
        if (chosen := self.sampling) is None:
            return
        try:
            sampling.check(chosen.temperature, chosen.top_k, chosen.top_p, chosen.guidance)
        except ValueError as error:
            raise RequestError(str(error)) from error
        # the wire takes no whole float
        object.__setattr__(self, "sampling", msgspec.structs.replace(chosen, top_k=int(chosen.top_k)))

    @property
    def sends_features(self) -> bool:
        """Whether features go up: as asked for, else as the policy is."""
        return self.policy.keeps if self.conditioning is None else self.conditioning

    def sampling_for(self, info: DraftInfo) -> Sampling:
        """How to sample with this draft.

        Raises:
            RequestError: tokens may be kept unjudged, of a draft that learned another guidance.
        """
        chosen = self.sampling or Sampling(guidance=info.guidance)
        if self.policy.keeps and chosen.guidance != info.guidance:
            raise RequestError(
                f"guidance is {chosen.guidance:g}, but the draft {info.name!r} learned {info.guidance:g}, and the "
                f"policy {self.policy.name!r} keeps its tokens: take {info.guidance:g}, or the policy 'speculative'"
            )
        return chosen

    def fitted(self, info: DraftInfo) -> DrawRequest:
        """This request with all that it leaves to the policy and the draft filled in. Raises as `sampling_for`."""
        return replace(
            self,
            policy=self.policy.fitted(info),
            sampling=self.sampling_for(info),
            rho=self._share,
            draft_temperature=self.sharpness,
        )

    @property
    def sharpness(self) -> float:
        """The temperature of what the draft draws from: the one that is given, else the policy's."""
        return self.policy.draft_temperature if self.draft_temperature is None else self.draft_temperature

    def inject(self, image_tokens: int) -> int:
        """Tokens that the cloud draws first, floor(rho * T)."""
        return floor_share(self._share, image_tokens)

    @property
    def _share(self) -> float:
        return self.policy.default_rho if self.rho is None else self.rho
