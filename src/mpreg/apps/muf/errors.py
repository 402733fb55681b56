"""What goes wrong between units. Wrong arguments are a plain `ValueError`, raised before any command is sent.

MufError
├── MufTimeout          no answer in time: the backend is not there, too slow, or died
├── MufRemoteError      the backend answered with ERR; `payload` is its bytes
├── MufConnectionLost   the store went away, or the unit was closed; the request may have been sent
├── MufIdInUse          a request, or an answer, of this id is there already; nothing was sent
└── MufBusy             as many calls as allowed are waiting; nothing was sent
"""

from __future__ import annotations

from mpreg.errors import MufError


class MufTimeout(MufError):
    def __init__(self, id: str, timeout_s: float) -> None:
        super().__init__(
            "MUF_TIMEOUT", f"no answer to {id} within {timeout_s:g} s", state_changed=None, id=id, timeout_s=timeout_s
        )


class MufRemoteError(MufError):
    def __init__(self, id: str, payload: bytes) -> None:
        shown = payload[:200].decode("utf-8", "backslashreplace")
        super().__init__("MUF_REMOTE", f"{id} was answered with an error: {shown}", state_changed=None, id=id)
        self.payload = payload


class MufConnectionLost(MufError):
    def __init__(self, id: str, why: str, *, state_changed: bool | None = None) -> None:
        super().__init__("MUF_CONNECTION_LOST", f"{id}: {why}", state_changed=state_changed, id=id)


class MufIdInUse(MufError):
    def __init__(self, id: str) -> None:
        super().__init__("MUF_ID_IN_USE", f"{id} is there already; an id is used once", id=id)


class MufBusy(MufError):
    def __init__(self, limit: int) -> None:
        super().__init__("MUF_BUSY", f"{limit} calls wait for their answers, which is the limit", limit=limit)
