"""What can go wrong on the device, as one tree. Every message is one sentence that ends with the mend.

```
DeviceError
├── RequestError          the request cannot be drawn: an unknown policy, rho out of range, tau and rate both given
├── OutputError           a file cannot be written
├── TraceError            a file is no trace, or one of another version
├── BundleError           a folder is no bundle, or one that is damaged or made for something newer
└── CloudError
    ├── CloudUnreachable  nobody answers at the address, or not in time
    ├── NotPixdraft       something answers there, but no pixdraft service
    ├── CloudRefused      the service said no, with a code of `protocol.frames.Failure`
    │   └── WrongModel    it serves another model, tokenizer or protocol than the bundle was made for
    ├── CloudBusy         no room now; carries when to come back
    ├── CloudLost         the connection broke mid-picture and the tries to come back are used up
    ├── CloudProtocol     an answer that the protocol does not allow here
    └── CloudRequired     lost, busy or refused mid-picture while the request insists on the cloud; carries the tokens
```
"""

from __future__ import annotations


class DeviceError(Exception):
    """Anything the device can say no to; the message names the field or address and the mend."""


class RequestError(DeviceError, ValueError):
    """The request cannot be drawn as it stands."""


class OutputError(DeviceError):
    """A file cannot be written."""


class TraceError(DeviceError, ValueError):
    """A trace cannot be read."""


class BundleError(DeviceError, ValueError):
    """A bundle cannot be used."""


class CloudError(DeviceError):
    """The cloud could not be used."""


class CloudUnreachable(CloudError):
    """Nobody answers at the address, or not in time."""


class NotPixdraft(CloudError):
    """Something answers at the address, but it is no pixdraft service."""


class CloudRefused(CloudError):
    """The service refused.

    Attributes:
        code: of `protocol.frames.Failure`.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class WrongModel(CloudRefused):
    """The service runs another model, tokenizer or protocol than the bundle was made for."""


class CloudBusy(CloudError):
    """The service has no room now.

    Attributes:
        retry_after: seconds until it is worth asking again.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CloudLost(CloudError):
    """The connection broke mid-picture, and the tries to come back are used up."""


class CloudProtocol(CloudError):
    """The service answered with what the protocol does not allow at this place."""


class CloudRequired(CloudError):
    """The picture stopped because the cloud is gone and the request insists on it.

    Attributes:
        tokens: image tokens settled or kept so far, from position 0 on.
    """

    def __init__(self, message: str, tokens: tuple[int, ...]) -> None:
        super().__init__(message)
        self.tokens = tokens
