"""Store URLs: what they mean, which part of a wrong one is wrong, and that no secret is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import StoreError
from mpreg.store import StoreUrl

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("text", "addresses", "database"),
    [
        ("valkey://localhost", (("localhost", 6379),), 0),
        ("redis://127.0.0.1:7000/5", (("127.0.0.1", 7000),), 5),
        ("REDIS://h?db=5", (("h", 6379),), 5),
        ("valkey://[::1]:7000", (("::1", 7000),), 0),
        ("unix:///run/valkey.sock", ("/run/valkey.sock",), 0),
        ("unix:///run/a%20b.sock?db=2", ("/run/a b.sock",), 2),
        ("valkey+cluster://a:1,b:2,c", (("a", 1), ("b", 2), ("c", 6379)), 0),
        ("valkey+sentinel://a,b:1/main?db=3", (("a", 26379), ("b", 1)), 3),
    ],
)
def test_where_the_store_is(text: str, addresses: tuple[object, ...], database: int) -> None:
    url = StoreUrl.parse(text)
    assert url.addresses == addresses
    assert url.database == database
    assert url.tls is None


def test_user_password_and_tls() -> None:
    url = StoreUrl.parse("rediss://me:p%40ss%2F@h?verify=ca&ca=/ca.pem&cert=/c.pem&key=/k.pem&server_name=n")
    assert (url.user, url.password) == ("me", "p@ss/")
    assert url.tls is not None
    assert (url.tls.verify, url.tls.ca, url.tls.cert, url.tls.key) == ("ca", "/ca.pem", "/c.pem", "/k.pem")
    assert url.tls.server_name == "n"
    assert StoreUrl.parse("valkey://:secret@h").user is None
    sentinel = StoreUrl.parse("valkey+sentinel://:p@h/name?sentinel_user=u&sentinel_password=q")
    assert (sentinel.service, sentinel.sentinel_user, sentinel.sentinel_password) == ("name", "u", "q")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("localhost:6379", "scheme"),
        ("", "scheme"),
        ("valky://localhost", "scheme"),
        ("http://localhost", "scheme"),
        ("valkey://", "host"),
        ("valkey://a b", "host"),
        ("valkey://a,b", "host"),
        ("valkey://::1:6379", "host"),
        ("valkey://[::1", "host"),
        ("unix://relative/path", "host"),
        ("unix://", "path"),
        ("valkey://h:", "port"),
        ("valkey://h:0", "port"),
        ("valkey://h:65536", "port"),
        ("valkey://h:http", "port"),
        ("valkey://h/first", "db"),
        ("valkey://h/-1", "db"),
        ("valkey://h/1/2", "path"),
        ("valkey://h/1?db=2", "query"),
        ("valkey://h?dbb=2", "query"),
        ("valkey://h?ca=/x", "query"),
        ("valkey://h?db=", "query"),
        ("valkey://h?db", "query"),
        ("valkey://h?db=1&db=2", "query"),
        ("valkey://u:@h", "password"),
        ("valkey://u:a#b@h", "fragment"),
        ("valkey://u:%ff@h", "password"),
        ("valkeys://h?verify=maybe", "verify"),
        ("valkeys://h?cert=/c", "cert"),
        ("valkey+cluster://h/1", "db"),
        ("valkey+sentinel://h", "path"),
    ],
)
def test_the_part_that_is_wrong_is_named(text: str, part: str) -> None:
    with pytest.raises(StoreError) as wrong:
        StoreUrl.parse(text)
    assert wrong.value.code == "STORE_INVALID_URL"
    assert wrong.value.details["part"] == part
    assert part in str(wrong.value)


@given(st.text(max_size=60) | st.builds("valkey://{}".format, st.text(max_size=60)))
def test_any_text_is_a_url_or_a_store_error(text: str) -> None:
    try:
        url = StoreUrl.parse(text)
    except StoreError as error:
        assert error.code == "STORE_INVALID_URL"  # noqa: PT017
    else:
        assert StoreUrl.parse(str(url)).addresses == url.addresses


@pytest.mark.parametrize(
    "text",
    [
        "valkey://me:{}@h/1",
        "unix://:{}@/run/s.sock",
        "valkeys+cluster://:{}@a,b",
        "valkey+sentinel://:x{}@h/n?sentinel_password={}",
        "valkey://h?password={}",
        "valkey://me:{}@h:nonsense",
        "valkey://me:{}@h?what=1",
        "valkey://me:{}@a,b",
        "vlky://me:{}@h",
        "me:{}@h",
        "valkey://me:{}#@h",
        "valkey://me:{}/x@h/2/3",
        "valkey://h?password={}&password={}",
        "valkey://me:{}@@h",
    ],
)
def test_a_secret_is_never_shown(text: str) -> None:
    secret = "Xk29zQqt"
    try:
        url = StoreUrl.parse(text.replace("{}", secret))
    except StoreError as error:
        assert secret not in f"{error} {error!r} {error.details}"  # noqa: PT017
    else:
        assert secret in (url.password or "") + (url.sentinel_password or "")
        assert secret not in f"{url} {url!r}"


@given(user=TEXT, password=TEXT)
def test_user_and_password_of_any_characters_can_be_written(user: str, password: str) -> None:
    from urllib.parse import quote

    url = StoreUrl.parse(f"valkey://{quote(user, safe='')}:{quote(password, safe='')}@h")
    assert (url.user, url.password) == (user, password)
