"""The loop: draft a token, keep it or ask the cloud, take the verdict, until the picture is full.

    settled tokens (the cloud has them) | block: kept, kept, ..., asked |
    0                              base                             length                                   T

What is in the block has not been sent yet. A kept token waits there until the next asked one takes it along; a run of
kept tokens at the end of the picture never goes up.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pixdraft.decoding import rng
from pixdraft.decoding.sparse import SparseDistribution, draft_distribution
from pixdraft.decoding.statistics import Evidence
from pixdraft.protocol import arrays
from pixdraft.protocol.blocks import Block, Shape
from pixdraft.protocol.frames import PROTOCOL_VERSION, Open, Sampling, Verdict
from pixdraft.protocol.link import Connector
from pixdraft.runtime.backends import DraftInfo, DraftModel
from pixdraft.runtime.client import CloudClient, Patience, Prefix
from pixdraft.runtime.errors import CloudBusy, CloudLost, CloudProtocol, CloudRequired
from pixdraft.runtime.picture import Decision, Picture, Seconds, TokenRecord
from pixdraft.runtime.policies import Judgement
from pixdraft.runtime.request import DrawRequest

Progress = Callable[[int, int], None]
"""Called with (tokens so far, T) as the picture grows; a rollback takes a few back."""


class DeviceSession:
    """Draws pictures with one draft model and one cloud, one at a time.

    Args:
        draft: the device's model.
        connect: starts a conversation with the cloud (`websocket.WebSocketConnector`).
        patience: with a cloud that is full or gone.
    """

    def __init__(self, draft: DraftModel, connect: Connector, patience: Patience | None = None) -> None:
        self._draft = draft
        self._connect = connect
        self._patience = patience or Patience()

    async def draw(self, request: DrawRequest, progress: Progress | None = None) -> Picture:
        """Draw one picture.

        Raises:
            RequestError: the draft cannot serve the request.
            CloudError: the session could not be opened, or the protocol was broken.
            CloudRequired: the cloud was lost and the request insists on it.
        """
        _keep_memory()
        drawing = _Drawing(self._draft, self._connect, self._patience, request, progress or (lambda done, total: None))
        try:
            return await drawing.draw()
        finally:
            await drawing.client.close()


def _keep_memory() -> None:
    """Let glibc keep freed arrays of a vocabulary for the next token.

    It gives free memory back to the system whenever there is twice the largest block ever freed, at first 256 KB: every
    position would get the same pages anew, one fault each, for up to five times as long as it computes. So free a
    large one, which costs nothing as it is never touched.
    """
    np.empty(16 << 20, np.uint8)


@dataclass(frozen=True, eq=False)
class _Drafted:
    """A token of the block: what it was drawn from, and what the policy said. `alone`: asked, but nobody was there."""

    token: int
    p: SparseDistribution
    probability: float
    judgement: Judgement
    alone: bool

    @property
    def asked(self) -> bool:
        return self.judgement.ask and not self.alone


class _Drawing:
    """One picture under way."""

    def __init__(
        self, draft: DraftModel, connect: Connector, patience: Patience, request: DrawRequest, progress: Progress
    ) -> None:
        self.began = time.perf_counter()
        self.seconds = {"open": 0.0, "draft": 0.0, "cloud": 0.0, "decode": 0.0}
        info: DraftInfo = draft.info
        self.draft, self.info, self.request, self.progress = draft, info, request, progress
        self.sampling: Sampling = request.sampling_for(info)
        self.judge = request.policy.judge(info)
        self.inject = request.inject(info.image_tokens)
        opening = Open(
            PROTOCOL_VERSION,
            info.model_hash,
            info.tokenizer_hash,
            request.prompt,
            request.seed,
            self.sampling,
            request.rule,
            self.inject,
        )
        shape = Shape(info.vocab_size, info.image_tokens, info.bottleneck)
        self.client = CloudClient(connect, opening, shape, patience, self.began)
        self.tokens = np.zeros(info.image_tokens, np.int64)
        self.features = np.zeros((info.image_tokens, info.bottleneck), np.float32)  # rows of the cloud's tokens stay 0
        self.length = 0  # tokens so far, the block's among them
        self.fed = 0  # of them, in the draft's cache
        self.block: list[_Drafted] = []
        self.records: list[TokenRecord] = []  # of all tokens before the block
        self.drafted = 0
        self.lost: str | None = None
        self.alone_until = -math.inf

    async def draw(self) -> Picture:
        with self._clock("open"):
            opened = await self.client.open()
            self.first = self.draft.open(arrays.read_condition(opened.condition))
        injected = arrays.read_tokens(opened.tokens, self.info.vocab_size)
        if injected.size != self.inject:
            raise CloudProtocol(f"the cloud injected {injected.size} tokens, not {self.inject}: update the older side")
        self._take(injected, Decision.INJECTED)
        if (count := self.request.policy.streamed(self.info.image_tokens) - self.length) > 0:
            await self._stream(count)
        if self.request.policy.silent:
            await self.client.close()
        await self._loop()
        with self._clock("cloud"):
            await self.client.close()
        with self._clock("decode"):
            pixels = self.draft.decode(self.tokens)
        return Picture(
            self.request.fitted(self.info),
            self.tokens,
            pixels,
            tuple(self.records),
            tuple(self.client.frames),
            self.drafted,
            self.client.passes,
            Seconds(**self.seconds, total=time.perf_counter() - self.began),
            self.info.name,
            opened.model,
            opened.tokenizer,
            self.lost,
        )

    async def _loop(self) -> None:
        """Draft, keep or ask, take the verdict."""
        total, asked = self.info.image_tokens, 0
        while self.length < total:
            with self._clock("draft"):
                self.block.append(drafted := self._next())
            asked += drafted.asked
            if asked and (asked == self.request.policy.block or self.length == total):
                await self._ask()
                asked = 0
            self.progress(self.length, total)
            # an embedded cloud, or a picture beside this one, gets its turn
            await asyncio.sleep(0)
        self._settle(len(self.block))

    def _next(self) -> _Drafted:
        """Draft the token at position n = `length`, and let the policy judge it."""
        n, chosen = self.length, self.sampling
        # Tokens that stand but were not fed yet go in as one block: one token, or two after a bonus. Feeding at a
        # position overwrites what a rolled-back draft left there.
        row = self.draft.step(self.tokens[self.fed : n], self.fed) if n else self.first
        self.fed = n
        # p is what would be sent, rounding included, at kept positions too: so asking changes nothing in the draw.
        keep = self.request.draft_top_k
        whole = draft_distribution(row.center[-1], chosen.temperature, chosen.top_k, chosen.top_p, keep)
        p = whole.sharpened(self.request.sharpness)
        token = p.sample(rng.uniform(self.request.seed, n, rng.DRAFT))
        # The policy judges what the draft thinks, whatever it was made to draw from: so its thresholds hold.
        dense = whole.dense(self.info.vocab_size)
        judgement = self.judge(Evidence(row.center[-1], row.radius[-1], dense, row.risk[-1], self.request.seed, n))
        self.tokens[n] = token
        self.features[n] = row.message[-1]
        self.length = n + 1
        self.drafted += 1
        alone = judgement.ask and time.perf_counter() < self.alone_until
        return _Drafted(token, p, p.probability(token), judgement, alone)

    async def _ask(self) -> None:
        """Send the block, take the verdict: s tokens of it stand, and one of the cloud's own follows them."""
        base = self.length - len(self.block)
        asked = tuple(i for i, d in enumerate(self.block) if d.asked)
        block = Block(
            base,
            self.tokens[base : self.length],
            asked,
            tuple(self.block[i].p for i in asked),
            self.features[base : self.length] if self._sends_features else None,
        )
        try:
            with self._clock("cloud"):
                verdict, q = await self.client.verify(self._prefix(base), block)
        except (CloudLost, CloudBusy) as error:
            self._go_alone(error)
            return
        self._apply(verdict, q, base)

    def _apply(self, verdict: Verdict, q: NDArray[np.float32], base: int) -> None:
        rejected = self.block[verdict.settled] if verdict.rejected else None
        self._settle(verdict.settled, q)
        # The rollback is this: the picture ends after the tokens that stand, and so does what the draft has seen of it.
        self.length = base + verdict.settled
        self.fed = min(self.fed, self.length)
        self.block.clear()
        if rejected is not None:
            self._take([verdict.token], Decision.CORRECTED, rejected)
        elif verdict.token >= 0:
            self._take([verdict.token], Decision.BONUS)

    def _settle(self, count: int, q: NDArray[np.float32] | None = None) -> None:
        """Record the first `count` tokens of the block; q holds the target's probability of the kept ones, if known."""
        audits = iter([] if q is None else q.tolist())
        for i, d in enumerate(self.block[:count]):
            decision = Decision.ACCEPTED if d.asked else Decision.ALONE if d.alone else Decision.KEPT
            # the chance that the lossless rule would have let a kept token stand
            seen = None if d.asked else next(audits, None)
            audit = None if seen is None else min(1.0, seen / d.probability)
            position = self.length - len(self.block) + i
            self.records.append(_record(position, d.token, decision, d, audit))

    def _take(self, tokens: NDArray[np.int64] | list[int], decision: Decision, drafted: _Drafted | None = None) -> None:
        """Append tokens that the target drew. They carry no features."""
        for token in tokens:
            self.records.append(_record(self.length, int(token), decision, drafted))
            self.tokens[self.length] = token
            self.features[self.length] = 0.0
            self.length += 1

    async def _stream(self, count: int) -> None:
        """Let the target draw the next `count` tokens."""
        total = self.info.image_tokens
        try:
            with self._clock("cloud"):
                prefix, strategy = self._prefix(self.length), self.request.policy.strategy
                async for part in self.client.generate(prefix, count, strategy):
                    self._take(part, Decision.CLOUD)
                    self.progress(self.length, total)
        except (CloudLost, CloudBusy) as error:
            self._go_alone(error)

    def _go_alone(self, error: CloudLost | CloudBusy) -> None:
        """Keep what was asked, and ask nothing more: for good, or until a full cloud may have room."""
        if self.request.require_cloud:
            unjudged = next((i for i, d in enumerate(self.block) if d.asked), len(self.block))
            stand = self.tokens[: self.length - len(self.block) + unjudged]
            sentence = f"the picture stopped at {stand.size} of {self.info.image_tokens} tokens: {error}"
            raise CloudRequired(sentence, tuple(stand.tolist())) from error
        self.lost = self.lost or str(error)
        self.alone_until = math.inf
        if isinstance(error, CloudBusy) and not self.request.policy.streams:
            self.alone_until = time.perf_counter() + error.retry_after
        self.block = [replace(d, alone=d.judgement.ask) for d in self.block]

    def _prefix(self, end: int) -> Prefix:
        return Prefix(self.tokens[:end], self.features[:end] if self._sends_features else None)

    @property
    def _sends_features(self) -> bool:
        return self.request.sends_features and self.info.bottleneck > 0

    @contextmanager
    def _clock(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start


def _record(
    position: int, token: int, decision: Decision, drafted: _Drafted | None, audit: float | None = None
) -> TokenRecord:
    if drafted is None:
        return TokenRecord(position, token, decision)
    judged = drafted.judgement
    return TokenRecord(position, token, decision, judged.statistic, judged.tau, drafted.probability, audit)
