"""Frames to bytes and back. What is inside the frames is read by `arrays` and `blocks`."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pixdraft.protocol.errors import ProtocolError
from pixdraft.protocol.frames import CloudFrame, DeviceFrame

MAX_FRAME_BYTES = 1 << 20

Frame = TypeVar("Frame")

_encoder = msgspec.msgpack.Encoder()
_device_decoder: msgspec.msgpack.Decoder[DeviceFrame] = msgspec.msgpack.Decoder(DeviceFrame)
_cloud_decoder: msgspec.msgpack.Decoder[CloudFrame] = msgspec.msgpack.Decoder(CloudFrame)


def encode(frame: DeviceFrame | CloudFrame) -> bytes:
    """A frame as msgpack: a map whose key "type" holds the tag, fields in the order of their declaration."""
    return _encoder.encode(frame)


def kind(frame: DeviceFrame | CloudFrame) -> str:
    """The tag of a frame, such as "verify"."""
    return str(frame.__struct_config__.tag)


def decode_device(data: bytes, max_bytes: int = MAX_FRAME_BYTES) -> DeviceFrame:
    """A frame that a device sent. Raises ProtocolError on anything else."""
    return _decode(_device_decoder, data, max_bytes)


def decode_cloud(data: bytes, max_bytes: int = MAX_FRAME_BYTES) -> CloudFrame:
    """A frame that a cloud sent. Raises ProtocolError on anything else."""
    return _decode(_cloud_decoder, data, max_bytes)


def _decode(decoder: msgspec.msgpack.Decoder[Frame], data: bytes, max_bytes: int) -> Frame:
    if len(data) > max_bytes:
        raise ProtocolError("limit", f"the frame is {len(data)} bytes long, more than the {max_bytes} allowed")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:  # it may quote a tag of any length
        raise ProtocolError("protocol", f"the frame is not one of this protocol: {error!s:.100}") from error
    # A field that no frame has is skipped at any depth, which can exhaust the stack; lengths are checked by msgspec.
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError("protocol", f"the frame is not well-formed msgpack: {error}") from error
