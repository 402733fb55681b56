import pytest

from mpreg import errors


def test_every_code_belongs_to_a_class_of_the_tree() -> None:
    prefixes = {cls.prefix for cls in errors.MpregError.__subclasses__()}
    assert {code.partition("_")[0] + "_" for code in errors.CODES} <= prefixes


@pytest.mark.parametrize("code", errors.CODES)
def test_an_error_from_the_wire_gets_the_class_of_its_category(code: str) -> None:
    error = errors.from_wire(code, "text", details={"path": "$.u", "code": "ignored"})
    assert error.code == code
    assert code.startswith(error.prefix)
    assert error.prefix
    assert error.retryable is errors.CODES[code].retryable
    assert error.details == {"path": "$.u"}


def test_an_unknown_category_is_still_an_error() -> None:
    assert type(errors.from_wire("WEATHER_RAIN", "text")) is errors.MpregError
