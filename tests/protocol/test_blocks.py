from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixdraft.protocol import arrays
from pixdraft.protocol.blocks import Shape, read_block, read_verdict
from pixdraft.protocol.codec import decode_device, encode
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import SparseDraft, Verdict, Verify

SHAPE = Shape(vocab_size=6, image_tokens=16, bottleneck=4)
ONE = SparseDraft(b"\2\0", b"\0\0")
FIVE = SparseDraft(b"\3\0\5\0", b"\0\0\0\x3c")
VERIFY = Verify("s", 4, bytes(8), arrays.write_tokens(np.array([2, 0, 5]), 6), (0, 2), (ONE, FIVE), bytes(12), bytes(6))


def changed(**fields: Any) -> Verify:
    frame: Verify = msgspec.structs.replace(VERIFY, **fields)
    return frame


def test_a_block_is_read() -> None:
    block = read_block(VERIFY, SHAPE)
    assert (block.base, block.tokens.tolist(), block.asked) == (4, [2, 0, 5], (0, 2))
    assert [draft.ids.tolist() for draft in block.drafts] == [[2], [3, 5]]
    assert block.features is not None
    assert block.features.shape == (3, 4)


def test_features_and_asked_tokens_may_be_missing() -> None:
    block = read_block(changed(features=b"", scales=b"", asked=(), drafts=()), SHAPE)
    assert block.features is None
    assert block.drafts == ()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prefix": bytes(7)}, "prefix is 7 bytes long, not 8"),
        ({"tokens": b""}, "tokens is empty"),
        ({"tokens": b"\6\0" * 3}, "tokens holds token 6"),
        ({"base": 14}, "base 14 and 3 tokens pass the picture's 16"),
        ({"asked": (2, 0)}, "asked is not strictly ascending"),
        ({"asked": (2, 2)}, "asked is not strictly ascending"),
        ({"asked": (0, 3)}, "asked holds offset 3, but the block has 3 tokens"),
        ({"asked": (0, 1, 2)}, "drafts holds 2 entries for 3 asked tokens"),
        ({"drafts": (ONE,)}, "drafts holds 1 entries for 2 asked tokens"),
        ({"drafts": (ONE, ONE)}, r"drafts\[1\].ids lacks its own token 5"),
        ({"drafts": (ONE, SparseDraft(b"\5\0", b"\0"))}, r"drafts\[1\].logits is 1 bytes"),
        ({"features": bytes(13)}, "features holds 13 bytes where 3 x 4"),
        ({"scales": b"\0\x7c" * 3}, "scales holds a number that is not finite"),
    ],
)
def test_blocks_are_checked(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence) as caught:
        read_block(changed(**fields), SHAPE)
    assert caught.value.code == "request"


def test_features_are_refused_where_the_model_takes_none() -> None:
    with pytest.raises(ProtocolError, match="features are not taken"):
        read_block(VERIFY, replace(SHAPE, bottleneck=0))


@given(st.data())
def test_a_damaged_block_is_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(encode(VERIFY))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = decode_device(bytes(whole))
        block = read_block(frame, SHAPE) if isinstance(frame, Verify) else None
    except ProtocolError:
        return
    assert block is None or (block.tokens < 6).all()


def verdict(**fields: Any) -> Verdict:
    values: dict[str, Any] = {"session": "s", "base": 4, "settled": 3, "token": 1, "audit": bytes(4)}
    return Verdict(**(values | fields))


@pytest.mark.parametrize(
    ("answer", "audited"),
    [(verdict(), 1), (verdict(settled=0, rejected=True, audit=b""), 0), (verdict(settled=2, rejected=True), 1)],
)
def test_verdicts_are_read(answer: Verdict, audited: int) -> None:
    assert read_verdict(answer, VERIFY, SHAPE).shape == (audited,)


def test_the_last_block_has_no_bonus() -> None:
    full = changed(base=13)
    assert read_verdict(verdict(base=13, token=-1), full, SHAPE).shape == (1,)
    with pytest.raises(ProtocolError, match="token 1 of the verdict cannot follow"):
        read_verdict(verdict(base=13), full, SHAPE)
    assert read_verdict(verdict(base=13, settled=2, rejected=True), full, SHAPE).shape == (1,)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (verdict(session="t"), "answers another frame"),
        (verdict(base=5), "answers another frame"),
        (verdict(settled=2), "settled 2 of the verdict ends at no token that was asked"),
        (verdict(settled=1, rejected=True), "settled 1 of the verdict"),
        (verdict(settled=4), "settled 4 of the verdict"),
        (verdict(token=-1), "token -1 of the verdict cannot follow"),
        (verdict(token=6), "token 6 of the verdict cannot follow"),
        (verdict(audit=b""), "audit holds 0 numbers where 1 belong"),
        (verdict(audit=b"\0\0\xc0\x7f"), "audit holds a number that is not finite"),
    ],
)
def test_verdicts_are_checked(answer: Verdict, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        read_verdict(answer, VERIFY, SHAPE)
