"""Messages of topics."""

from __future__ import annotations

from mpreg.wire.message import RoleMessage

MESSAGES: tuple[type[RoleMessage], ...] = ()
