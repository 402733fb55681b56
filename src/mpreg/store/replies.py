"""What an error reply of the server means: the text that hiredis hands over becomes one `StoreReplyError`."""

from __future__ import annotations

from mpreg.errors import StoreError

TEXT_MAX = 300
"""A script can raise megabytes; an error carries this many characters of it."""


class StoreReplyError(StoreError):
    """The server answered with an error. `reply` is its first word, `text` all of it (shortened, arguments cut off)."""

    def __init__(self, code: str, text: str, *, state_changed: bool | None = False) -> None:
        super().__init__(code, f"the store answered: {text}", state_changed=state_changed, reply=text.partition(" ")[0])
        self.text = text


_CODES = {
    "WRONGTYPE": "STORE_WRONG_TYPE",
    "OOM": "STORE_OUT_OF_MEMORY",
    "READONLY": "STORE_READ_ONLY",
    "NOREPLICAS": "STORE_READ_ONLY",
    "LOADING": "STORE_LOADING",
    "MASTERDOWN": "STORE_LOADING",
    "BUSY": "STORE_SCRIPT_BUSY",
    "NOAUTH": "STORE_AUTH",
    "WRONGPASS": "STORE_AUTH",
    "NOPERM": "STORE_NOT_PERMITTED",
    "DENIED": "STORE_NOT_PERMITTED",
    "MISCONF": "STORE_CANNOT_PERSIST",
    "CROSSSLOT": "STORE_CROSS_SLOT",
    "CLUSTERDOWN": "STORE_CLUSTER_DOWN",
    "MOVED": "STORE_REDIRECTED",
    "ASK": "STORE_REDIRECTED",
    "TRYAGAIN": "STORE_REDIRECTED",
}
_NO_ROOM = "ERR max number of clients"
_SCRIPT_MARKS = ("user_script", "script: ", "Error running script", "user_function", "function: ")


def reply_error(text: str) -> StoreReplyError:
    # An unknown command is quoted with its arguments, which may be anybody's secret.
    text = text.partition(", with args beginning with")[0][:TEXT_MAX]
    code = "STORE_UNAVAILABLE" if text.startswith(_NO_ROOM) else _CODES.get(text.partition(" ")[0])
    if any(mark in text for mark in _SCRIPT_MARKS):
        # A script is not rolled back: whatever ran before the error stays.
        return StoreReplyError(code or "STORE_SCRIPT_FAILED", text, state_changed=None)
    return StoreReplyError(code or "STORE_REPLY", text)
