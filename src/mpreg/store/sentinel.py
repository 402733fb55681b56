"""The primary behind sentinels: asked for each time a connection is dialled.

What a sentinel says may be out of date, so the server itself is asked too (`Dial.primary_only`), and a server that
answers READONLY is left. Sentinels break the connections of a primary that they have replaced.
"""

from __future__ import annotations

from msgspec.structs import replace

from mpreg.errors import StoreError
from mpreg.store.dedicated import Dedicated
from mpreg.store.dial import Dial
from mpreg.store.replies import StoreReplyError
from mpreg.store.servers import Where, fixed
from mpreg.store.url import Address, StoreUrl, format_address


def sentinels(url: StoreUrl, how: Dial) -> Where:
    asking = replace(how, user=url.sentinel_user, password=url.sentinel_password, database=0, primary_only=False)
    order = list(url.addresses)

    async def where() -> Address:
        problems: list[str] = []
        unknown = 0
        for sentinel in list(order):
            try:
                async with Dedicated(fixed(sentinel), asking) as link:
                    answer = await link.command(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", url.service)
            except StoreError as error:
                if isinstance(error, StoreReplyError) and error.code == "STORE_REPLY":
                    why = f"store URL, host: {format_address(sentinel)} is not a sentinel"
                    raise StoreError("STORE_INVALID_URL", why, part="host") from None
                problems.append(error.message)
                continue
            if answer is None:
                unknown += 1
                problems.append(f"{format_address(sentinel)} knows no primary of the name {url.service!r}")
                continue
            # Who answered is asked first the next time.
            order.remove(sentinel)
            order.insert(0, sentinel)
            return answer[0].decode(), int(answer[1])
        if unknown == len(order):
            raise StoreError("STORE_INVALID_URL", f"store URL, path: {'; '.join(problems)}", part="path")
        raise StoreError("STORE_UNAVAILABLE", f"no sentinel says who the primary is: {'; '.join(problems)}")

    return where
