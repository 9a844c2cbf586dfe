"""One picture in the cloud: its tokens, its place in the model's cache, and what the device may ask of it.

The cache lags the tokens on purpose: a drawn token is settled at once and fed at the start of the next pass, so that
every `Verify` costs one forward pass. Between requests

    cached <= max(0, length - 1)

holds: the last settled token is never in the cache, so the pass that feeds it also yields the logits after it, and no
logits are kept. Only position 0 needs the logits that came with the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixdraft.cloud_stub import jacobi
from pixdraft.cloud_stub.trees import Trees
from pixdraft.cloud_stub.verification import judge
from pixdraft.decoding import acceptance, rng, sampling, strategies
from pixdraft.models.target import PromptError, TargetInfo, TargetModel, no_drafter
from pixdraft.protocol import arrays
from pixdraft.protocol.blocks import Shape, read_block
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import PROTOCOL_VERSION, Generate, Open, Opened, Sampling, Tokens, Verdict, Verify


class CloudSession:
    """The state of one picture. Not thread-safe: one call at a time, from any thread.

    That a frame names this session is the caller's to check. Every refusal is a ProtocolError raised before anything
    is changed; after any other exception the session is to be dropped: the model's cache may be half-written.

    Args:
        name: what the device shall call it by.
        model: the target.
        opening: the device's first frame.

    Raises:
        ProtocolError: "protocol", "model" or "tokenizer" where the device was made for another; "prompt"; "request".
    """

    def __init__(self, name: str, model: TargetModel, opening: Open) -> None:
        info = model.info
        check_identity(opening, info)
        check_sampling(opening.sampling)
        self.name = name
        self.shape = Shape(info.vocab_size, info.image_tokens, info.bottleneck)
        tokens = arrays.read_tokens(opening.tokens, info.vocab_size)
        for field, count in (("inject", opening.inject), ("tokens", tokens.size)):
            if count > info.image_tokens:
                raise ProtocolError("request", f"{field} asks for {count} of the picture's {info.image_tokens} tokens")
        features = arrays.dequantise(opening.features, opening.scales, tokens.size, info.bottleneck)
        try:
            self._rule = acceptance.create(opening.rule.name, opening.rule.parameters, model.codebook)
        except ValueError as error:
            raise ProtocolError("request", f"rule: {error}") from error
        try:
            opened = model.open(opening.prompt, opening.sampling.guidance)
        except PromptError as error:
            raise ProtocolError("prompt", str(error)) from error
        self._model = model
        self._seed = opening.seed
        self._sampling = opening.sampling
        self._condition = opened.condition
        self._cache = opened.cache
        self._first_logits = opened.logits
        self._tokens = np.zeros(info.image_tokens, np.int64)
        self._features = np.zeros((info.image_tokens, info.bottleneck), np.float32)
        self._cached = 0
        self._length = 0
        self._passes = 0
        self._verified: tuple[Verify, Verdict] | None = None
        self._streamed: tuple[Generate, list[Tokens]] | None = None
        self.to_inject = 0 if tokens.size else opening.inject
        self._settle(tokens, features, tokens.size)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The settled tokens, a copy [length]."""
        return self._tokens[: self._length].copy()

    def opened(self) -> Opened:
        """The answer to the opening, once `to_inject` tokens are drawn."""
        return Opened(
            self.name,
            self._model.info.model_hash,
            self._model.info.tokenizer_hash,
            arrays.write_condition(self._condition),
            arrays.write_tokens(self._tokens[: self.to_inject], self.shape.vocab_size),
        )

    def draw(self, count: int) -> Iterator[int]:
        """Let the target draw the next `count` tokens (at most to the end of the picture), one pass each."""
        for _ in range(min(count, self.shape.image_tokens - self._length)):
            u = rng.uniform(self._seed, self._length, rng.TARGET)
            token = sampling.sample(self._probabilities(self._extend())[0], u)
            self._settle(np.array([token]))
            yield token

    def generate(self, frame: Generate, chunk: int) -> Iterator[Tokens]:
        """Answer a `Generate`. The same frame again is answered with the same frames, without the model.

        A sequential strategy answers `chunk` tokens a frame, another with what each pass settles.
        """
        end = frame.base + frame.count
        if end > self.shape.image_tokens:
            raise ProtocolError(
                "request", f"base {frame.base} and count {frame.count} pass the picture's {self.shape.image_tokens}"
            )
        try:
            strategy = strategies.create(frame.strategy.name, frame.strategy.parameters)
        except strategies.StrategyError as error:
            raise ProtocolError("request", f"strategy: {error}") from error
        if isinstance(strategy, strategies.EAGLE2) and self._model.drafter is None:
            raise ProtocolError("request", f"strategy: eagle2: {no_drafter(self._model.info.name)}")
        if self._streamed is not None and self._streamed[0] == frame:
            yield from self._streamed[1]
            return
        self._seek(frame)
        answers: list[Tokens] = []
        passes = self._passes
        for drawn in self._draw_by(strategy, end, chunk):
            written = arrays.write_tokens(drawn, self.shape.vocab_size)
            last = self._length == end
            answers.append(Tokens(self.name, self._length - drawn.size, written, last, self._passes - passes))
            passes = self._passes
            if last:
                self._streamed = (frame, answers)
            yield answers[-1]

    def _draw_by(self, strategy: strategies.Strategy, end: int, chunk: int) -> Iterator[NDArray[np.int64]]:
        """Draw and settle up to `end`; the tokens as they come."""
        if isinstance(strategy, strategies.EAGLE2) and (drafter := self._model.drafter) is not None:
            grown = Trees(self._model, drafter, self._cache, strategy, self._rule, self._seed, self._probabilities)
            yield from self._draw_by_trees(grown, end)
        if isinstance(strategy, strategies.Jacobi):
            last = int(self._tokens[self._length - 1]) if self._length else None
            ahead = jacobi.window(strategy, self._rule, self.shape.vocab_size, self._seed, self._length, end, last)
            while self._length < end:
                settled = ahead.take(self._probabilities(self._extend(ahead.tokens)))
                self._settle(settled)
                yield settled
        while self._length < end:
            yield np.array(list(self.draw(min(chunk, end - self._length))), np.int64)

    def _draw_by_trees(self, trees: Trees, end: int) -> Iterator[NDArray[np.int64]]:
        """Draw and settle up to `end`: the first token by the prompt's own logits, then what stands of each tree.

        Where the cache lacks more than the last token, as after a session was rebuilt, a pass fills it and settles
        nothing: so the trees are those of an unbroken session, and the tokens too.
        """
        if not self._length:
            u = rng.uniform(self._seed, 0, rng.RESIDUAL)
            first = np.array([sampling.sample(self._probabilities(self._first_logits), u)])
            self._settle(first)
            yield first
        while (base := self._length) < end:
            if self._cached < base - 1:
                self._feed(base - 1)
            settled, cached = trees.take(self.tokens, self._features[base - 1], end - base)
            self._passes += 1
            self._cached += cached
            self._settle(settled)
            yield settled

    def verify(self, frame: Verify) -> Verdict:
        """Answer a `Verify` with one forward pass; the same frame again with the same verdict and none."""
        if self._verified is not None and self._verified[0] == frame:
            return self._verified[1]
        block = read_block(frame, self.shape)
        self._seek(frame)
        target = self._probabilities(self._extend(block.tokens, block.features))
        judged = judge(target, block, self._rule, self._seed)
        settled = np.concatenate([block.tokens[: judged.settled], judged.drawn])
        self._settle(settled, block.features, judged.settled)
        verdict = Verdict(
            self.name,
            frame.base,
            judged.settled,
            judged.token,
            judged.rejected,
            arrays.write_floats(judged.audit, "float32"),
        )
        self._verified = (frame, verdict)
        return verdict

    def _seek(self, frame: Verify | Generate) -> None:
        """Go to the frame's base, forgetting tokens after it; refused where the tokens before it are not the same."""
        base = frame.base
        if base > self._length:
            raise ProtocolError(
                "session", f"base is {base}, but the session holds {self._length} tokens: open again with tokens"
            )
        if frame.prefix != arrays.prefix_hash(self._tokens[:base], self.shape.vocab_size):
            raise ProtocolError("session", f"prefix differs in the {base} tokens before base: open again with tokens")
        self._length = base
        self._verified = self._streamed = None
        self._trim()

    def _extend(
        self, tokens: NDArray[np.int64] | None = None, features: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """One pass over the settled tokens that the cache lacks and then `tokens`, unsettled [n].

        Returns the logits of the positions length..length+n, [n + 1, V]; the last is missing where the picture ends.
        """
        n = 0 if tokens is None else tokens.size
        end = min(self._length + n, self.shape.image_tokens - 1)  # nothing follows the last token: it is never fed
        if tokens is not None:
            self._tokens[self._length : self._length + n] = tokens
            self._features[self._length : self._length + n] = 0.0 if features is None else features
        rows = self._first_logits[None]
        if end > self._cached:
            before = self._cached
            logits = self._feed(end)
            rows = logits[self._length - before - 1 :] if self._length else np.concatenate([rows, logits])
        return rows

    def _feed(self, end: int) -> NDArray[np.float32]:
        """One pass over the tokens that the cache lacks up to `end`; the logits after each."""
        fed = slice(self._cached, end)
        features = self._features[fed]
        logits = self._model.forward(self._tokens[fed], self._cache, features if features.any() else None)
        self._cached = end
        self._passes += 1
        return logits

    def _settle(self, tokens: NDArray[Any], features: NDArray[np.float32] | None = None, featured: int = 0) -> None:
        """Append tokens; the first `featured` of them carry features (where there are any), the others none."""
        start, end = self._length, self._length + tokens.size
        self._tokens[start:end] = tokens
        self._features[start:end] = 0.0
        if features is not None:
            self._features[start : start + featured] = features[:featured]
        self._length = end
        self._trim()

    def _trim(self) -> None:
        """Cut the cache to what the invariant allows."""
        if (keep := max(0, self._length - 1)) < self._cached:
            self._model.truncate(self._cache, keep)
            self._cached = keep

    def _probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        chosen = self._sampling
        return sampling.probabilities(logits, chosen.temperature, chosen.top_k, chosen.top_p)


def check_identity(opening: Open, info: TargetInfo) -> None:
    """Refuse a device that was made for another protocol, model or tokenizer, naming both."""
    if opening.protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            "protocol",
            f"the device speaks protocol {opening.protocol}, this cloud {PROTOCOL_VERSION}: update the older one",
        )
    for code, wanted, served in (
        ("model", opening.model, info.model_hash),
        ("tokenizer", opening.tokenizer, info.tokenizer_hash),
    ):
        if wanted and wanted != served:
            raise ProtocolError(
                code,
                f"the device's bundle was made for {code} {wanted[:64]!r}, this cloud serves {served!r} ({info.name}): "
                f"use the bundle of {info.name}, or a cloud that serves the other",
            )


def check_sampling(chosen: Sampling) -> None:
    """Refuse sampling that no distribution follows from."""
    try:
        sampling.check(chosen.temperature, chosen.top_k, chosen.top_p, chosen.guidance)
    except ValueError as error:
        raise ProtocolError("request", f"sampling.{error}") from error
