"""The frames of the wire: msgpack, tagged structs. docs/protocol.md describes them for the ports.

One WebSocket is one session. The device speaks first with `Open`; every later frame of the device names the
session, the position it starts at and the hash of all tokens before it, so that a frame which is sent twice does
nothing twice, and a cloud that lost the session can say so.

Arrays travel as little-endian bytes: tokens uint16 (uint32 where V > 65,536), logits and scales float16.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

PROTOCOL_VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How both sides turn logits into probabilities: guidance (cloud only), temperature, top-k, top-p.

    `top_k` 0 and `top_p` 1 keep everything.
    """

    guidance: float = 1.0
    temperature: float = 1.0
    top_k: Count = 0
    top_p: float = 1.0


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The acceptance rule that judges asked tokens, by its name in `decoding.acceptance.RULES`."""

    name: str = "lossless"
    parameters: dict[str, float] = {}


class Strategy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the target draws by itself, by its name in `decoding.strategies.STRATEGIES`."""

    name: str = "sequential"
    parameters: dict[str, float | str] = {}


class Condition(msgspec.Struct, frozen=True):
    """What the device's model needs of the prompt: an array of `dtype` "int32" (word ids) or "float16" (features)."""

    dtype: str
    shape: tuple[Count, ...]
    data: bytes


class SparseDraft(msgspec.Struct, frozen=True, array_like=True):
    """The draft distribution at one asked position: ids, strictly ascending, and a float16 logit for each.

    The device SAMPLES from exactly this: softmax of the float16 logits in float64 over `ids`, no temperature left
    to apply. That keeps a truncated draft exact.
    """

    ids: bytes
    logits: bytes


# --- device to cloud ---------------------------------------------------------------------------------------------


class Open(msgspec.Struct, tag="open", frozen=True, omit_defaults=True):
    """Begin a picture, or (with `tokens`) rebuild a lost session from its token prefix.

    Attributes:
        protocol: PROTOCOL_VERSION of the device.
        model, tokenizer: SHA-256 (hex) of the target and the tokenizer that the device's bundle was made for;
            empty asks for whatever is served.
        prompt: the text.
        seed: of the counter RNG, 0 <= seed < 2**64.
        inject: tokens the cloud shall draw first, floor(rho * T).
        tokens: prefix to rebuild from; then nothing is injected.
        features, scales: of `tokens`, as in `Verify`, rows of the cloud's own tokens zero; empty rebuilds without.
    """

    protocol: int
    model: str
    tokenizer: str
    prompt: str
    seed: Count
    sampling: Sampling = Sampling()
    rule: Rule = Rule()
    inject: Count = 0
    tokens: bytes = b""
    features: bytes = b""
    scales: bytes = b""


class Verify(msgspec.Struct, tag="verify", frozen=True, omit_defaults=True):
    """A block of drafted tokens, some of them asked.

    Attributes:
        session: from `Opened`.
        base: image position of the first token of the block.
        prefix: `prefix_hash` of all tokens before `base`.
        tokens: the block, in order.
        asked: offsets in the block that the cloud shall judge, ascending; the others were kept by the device.
        drafts: one distribution for each asked offset.
        features: bottleneck features of the WHOLE block, int8 [n, bottleneck]; empty sends none (f^I = 0).
        scales: float16 [n], feature = int8 * scale.
    """

    session: str
    base: Count
    prefix: bytes
    tokens: bytes
    asked: tuple[Count, ...]
    drafts: tuple[SparseDraft, ...]
    features: bytes = b""
    scales: bytes = b""


class Generate(msgspec.Struct, tag="generate", frozen=True, omit_defaults=True):
    """Let the target draw `count` tokens from `base` on by itself; answered by a stream of `Tokens`.

    Attributes:
        session, base, prefix: as in `Verify`.
        count: tokens to draw.
        strategy: how; the session's rule judges where a strategy asks for one.
    """

    session: str
    base: Count
    prefix: bytes
    count: Annotated[int, msgspec.Meta(ge=1)]
    strategy: Strategy = Strategy()


class Close(msgspec.Struct, tag="close", frozen=True):
    """The picture is done; the cloud forgets the session."""

    session: str


# --- cloud to device ---------------------------------------------------------------------------------------------


class Opened(msgspec.Struct, tag="opened", frozen=True, omit_defaults=True):
    """The session is ready: what is served, the condition for the device's model, and the injected prefix."""

    session: str
    model: str
    tokenizer: str
    condition: Condition
    tokens: bytes = b""


class Verdict(msgspec.Struct, tag="verdict", frozen=True, omit_defaults=True):
    """The answer to `Verify`.

    Attributes:
        base: as asked.
        settled: tokens of the block that stand, counted from its start.
        token: the token after them: drawn from the residual where an asked token was rejected, or the bonus token
            where all stood; -1 where the picture is full.
        rejected: whether `token` replaces a rejected one.
        audit: float32 target probability q(x) of each KEPT token among the settled, in order (free: the pass had it).
    """

    session: str
    base: Count
    settled: Count
    token: Annotated[int, msgspec.Meta(ge=-1)]
    rejected: bool = False
    audit: bytes = b""


class Tokens(msgspec.Struct, tag="tokens", frozen=True, omit_defaults=True):
    """Some tokens that the target drew.

    Attributes:
        base: image position of the first.
        last: whether they end the stream of one `Generate`.
        passes: passes of the target that they took.
    """

    session: str
    base: Count
    tokens: bytes
    last: bool
    passes: Count = 0


class Busy(msgspec.Struct, tag="busy", frozen=True):
    """No room now; try again after `retry_after_ms`. The device goes on alone meanwhile."""

    retry_after_ms: Count


class Failure(msgspec.Struct, tag="failure", frozen=True):
    """A refusal: a stable code and one sentence with the mend.

    Codes: "protocol", "model", "tokenizer", "prompt", "request", "session" (unknown or lost: open again with
    `tokens`), "limit", "internal".
    """

    code: str
    message: str


DeviceFrame = Open | Verify | Generate | Close
CloudFrame = Opened | Verdict | Tokens | Busy | Failure
