from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixdraft.protocol import examples
from pixdraft.protocol.codec import decode_cloud, decode_device, encode, kind
from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import CloudFrame, DeviceFrame, Failure, Generate, Open, Strategy

DEVICE = examples.device_frames()
CLOUD = examples.cloud_frames()
GENERATE = {"type": "generate", "session": "s", "base": 0, "prefix": b"", "count": 1}


@pytest.mark.parametrize("name", DEVICE)
def test_device_frames_come_back(name: str) -> None:
    assert decode_device(encode(DEVICE[name])) == DEVICE[name]


@pytest.mark.parametrize("name", CLOUD)
def test_cloud_frames_come_back(name: str) -> None:
    assert decode_cloud(encode(CLOUD[name])) == CLOUD[name]


@pytest.mark.parametrize("name", examples.golden())
def test_golden_files_are_what_the_code_writes(name: str) -> None:
    assert (examples.GOLDEN / name).read_text(encoding="utf-8") == examples.golden()[name]


@pytest.mark.parametrize(("name", "decode"), [("device.json", decode_device), ("cloud.json", decode_cloud)])
def test_golden_bytes_hold_the_golden_fields(name: str, decode: Any) -> None:
    for entry in json.loads((examples.GOLDEN / name).read_text(encoding="utf-8")):
        frame = decode(bytes.fromhex(entry["hex"]))
        assert encode(frame).hex() == entry["hex"]
        assert examples.fields(frame) == entry["fields"]
        assert entry["fields"]["type"] == kind(frame)


def test_every_frame_has_a_golden_one() -> None:
    assert {type(frame) for frame in DEVICE.values()} == set(DeviceFrame.__args__)
    assert {type(frame) for frame in CLOUD.values()} == set(CloudFrame.__args__)


def test_a_whole_number_does_for_a_parameter() -> None:
    frame = decode_device(
        msgspec.msgpack.encode({**GENERATE, "strategy": {"name": "sjd", "parameters": {"window": 8}}})
    )
    assert isinstance(frame, Generate)
    assert frame.strategy == Strategy("sjd", {"window": 8.0})


def test_fields_of_a_newer_version_are_ignored() -> None:
    raw = msgspec.msgpack.decode(encode(DEVICE["close"])) | {"reason": ["later", {"x": 1}]}
    assert decode_device(msgspec.msgpack.encode(raw)) == DEVICE["close"]


def refused(data: bytes, decode: Any = decode_device, **options: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(data, **options)
    assert "\n" not in caught.value.sentence
    return caught.value


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    error = refused(b"\xc1" * 101, max_bytes=100)
    assert error.code == "limit"
    assert error.sentence == "the frame is 101 bytes long, more than the 100 allowed"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"type": "opne"}, "opne"),
        ({"type": "verdict"}, "verdict"),
        ({"type": "close"}, "session"),
        ({"type": "close", "session": 3}, r"\$.session"),
        ({"type": "generate", "session": "s", "base": -1, "prefix": b"", "count": 1}, r"\$.base"),
        ({"type": "generate", "session": "s", "base": 0, "prefix": b"", "count": 0}, r"\$.count"),
        ({"type": "generate", "session": "s", "base": 0, "prefix": "text", "count": 1}, r"\$.prefix"),
        ({**GENERATE, "strategy": {"parameters": {"window": [16]}}}, r"\$.strategy.parameters"),
        ({**GENERATE, "strategy": "sjd"}, r"\$.strategy"),
        ({"session": "s"}, "type"),
        ([1, 2], "object"),
    ],
)
def test_what_is_wrong_is_named(fields: Any, sentence: str) -> None:
    error = refused(msgspec.msgpack.encode(fields))
    assert error.code == "protocol"
    assert sentence.replace("\\", "") in error.sentence


def test_frames_of_the_other_direction_are_refused() -> None:
    assert refused(encode(CLOUD["busy"])).code == "protocol"
    assert refused(encode(DEVICE["close"]), decode_cloud).code == "protocol"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        encode(DEVICE["verify"])[:-3],
        encode(DEVICE["close"]) + b"\x00",
        b"\x82\xa4type\xa5close\xa5other" + b"\x91" * 100_000,  # deep nesting
        b"\x82\xa4type\xa6verify\xa5asked\xdd\xff\xff\xff\xff",  # an array of four billion, in five bytes
        b"\x82\xa4type\xa6verify\xa6prefix\xc6\xff\xff\xff\xff",
        b"\x82\xa4type\xa5close\xa7session\xa2\xff\xfe",  # no UTF-8
    ],
    ids=["empty", "reserved", "cut", "trailing", "deep", "long array", "long bytes", "text"],
)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    assert refused(data).code == "protocol"


@given(st.binary(max_size=300))
def test_random_bytes_never_do_anything_else(data: bytes) -> None:
    for decode in (decode_device, decode_cloud):
        with pytest.raises(ProtocolError):
            decode(data)


@given(st.sampled_from(sorted(DEVICE)), st.data())
def test_damaged_frames_are_refused_or_read(name: str, data: st.DataObject) -> None:
    whole = bytearray(encode(DEVICE[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = decode_device(bytes(whole))
    except ProtocolError:
        return
    assert decode_device(encode(frame)) == frame


def test_prompts_and_sentences_may_hold_any_text() -> None:
    frame = Open(1, "", "", "füchse 🦊 \x00", 2**64 - 1)
    assert decode_device(encode(frame)) == frame
    failure = Failure("internal", "…")
    assert decode_cloud(encode(failure)) == failure
