"""Connections that break and refuse as told, to see what the device does about it."""

from __future__ import annotations

from fakes import TableTarget
from pixdraft.cloud_stub.local_link import LocalCloud
from pixdraft.protocol.codec import decode_device, encode, kind
from pixdraft.protocol.frames import CloudFrame, DeviceFrame
from pixdraft.protocol.link import Link, LinkClosed
from pixdraft.runtime.errors import CloudUnreachable


class UnsteadyCloud:
    """A cloud in this process whose links misbehave. Frames are numbered from 0 as devices send them, over all links.

    Attributes:
        breaks: numbers of frames at which the link breaks: "before" the cloud sees the frame, or "after" it answered,
            on the way back.
        instead: what to answer to a frame, instead of the cloud.
        gone_after: links after which nobody answers any more.
        received: answers that a link gives before it breaks, by number of the link from 1.
        sent: frames so far, whether they arrived or not.
        links: how many were begun.
    """

    def __init__(
        self,
        target: TableTarget,
        breaks: dict[int, str] | None = None,
        instead: dict[int, CloudFrame] | None = None,
        gone_after: int | None = None,
        received: dict[int, int] | None = None,
    ) -> None:
        self.target = target
        self.breaks = breaks or {}
        self.instead = instead or {}
        self.gone_after = gone_after
        self.received = received or {}
        self.sent: list[DeviceFrame] = []
        self.links = 0
        self._local = LocalCloud(target)

    async def __call__(self) -> Link:
        if self.links == self.gone_after:
            raise CloudUnreachable("no cloud can be reached at local: start it there")
        self.links += 1
        return UnsteadyLink(self, await self._local(), self.received.get(self.links))

    def kinds(self) -> list[str]:
        """Tags of the frames so far."""
        return [kind(frame) for frame in self.sent]

    def numbers(self, *wanted: str) -> list[int]:
        """Numbers of the frames with these tags."""
        return [i for i, name in enumerate(self.kinds()) if name in wanted]


class UnsteadyLink:
    def __init__(self, cloud: UnsteadyCloud, link: Link, answers: int | None) -> None:
        self._cloud = cloud
        self._link = link
        self._left = answers
        self._instead: CloudFrame | None = None

    async def send(self, data: bytes) -> None:
        number = len(self._cloud.sent)
        self._cloud.sent.append(decode_device(data))
        when = self._cloud.breaks.get(number)
        if when == "before":
            raise LinkClosed("the network broke")
        self._instead = self._cloud.instead.get(number)
        if self._instead is None:
            await self._link.send(data)
        if when == "after":
            self._left = 0

    async def receive(self) -> bytes:
        if self._left == 0:
            raise LinkClosed("the network broke")
        if self._left is not None:
            self._left -= 1
        return encode(self._instead) if self._instead is not None else await self._link.receive()

    async def close(self) -> None:
        await self._link.close()
