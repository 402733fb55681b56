"""The order of the commands of one request (R-R1 to R-R3): who waits for whom, and what each gets. Pure.

plan = Plan(calls)                  refuses what can't be planned before anything runs
plan.start()                        the commands that can run now
plan.arguments(name)                of a command whose inputs are there
plan.finish(name, result)           the commands that can run since
plan.is_needed(name)                does another command refer to its result?
plan.answer()                       the names of the results that the request asked for, once `plan.is_done`

Results that are used many times over by commands whose results are used many times over grow exponentially; so what
the arguments of one command may take from other results is limited, before anything is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mpreg.errors import ResourceError, RpcError

COMMANDS_MAX = 1_000
NAME_LENGTH_MAX = 256
ARGUMENTS_BYTES_MAX = 100_000_000
"""Of all results that the arguments of one command refer to, together."""


class Call(NamedTuple):
    """A command whose arguments are plain data."""

    name: str
    args: Sequence[Any]
    kwargs: dict[str, Any]


class Reference(NamedTuple):
    """Stands in the arguments for (a part of) another command's result."""

    name: str
    path: tuple[str, ...]


class Plan:
    """`size_of` says how many bytes a value takes when it is sent."""

    def __init__(
        self, calls: Sequence[Call], size_of: Callable[[Any], int], arguments_bytes_max: int = ARGUMENTS_BYTES_MAX
    ) -> None:
        names = check_names([call.name for call in calls])
        self._size_of = size_of
        self._arguments_bytes_max = arguments_bytes_max
        self._calls: dict[str, tuple[list[Any], dict[str, Any]]] = {}
        self._waits_for: dict[str, set[str]] = {}
        self._waiting: dict[str, list[str]] = {name: [] for name in names}
        for call in calls:
            needs: set[str] = set()
            parse = _Parser(call.name, names, needs).parse if len(calls) > 1 else _unchanged
            try:
                self._calls[call.name] = (
                    [parse(arg) for arg in call.args],
                    {k: parse(v) for k, v in call.kwargs.items()},
                )
            except RecursionError:
                raise _too_deep(call.name) from None
            self._waits_for[call.name] = needs
            for need in needs:
                self._waiting[need].append(call.name)
        self._results: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._done = 0
        self._refuse_cycles()

    def start(self) -> list[str]:
        return [name for name, needs in self._waits_for.items() if not needs]

    def is_needed(self, name: str) -> bool:
        return bool(self._waiting[name])

    def arguments(self, name: str) -> tuple[list[Any], dict[str, Any]]:
        """Raises `RPC_REFERENCE_NOT_FOUND` for a path that the result does not have."""
        args, kwargs = self._calls[name]
        resolver = _Resolver(self._results, self._sizes, self._size_of, self._arguments_bytes_max)
        try:
            return (
                [resolver.resolve(arg) for arg in args],
                {key: resolver.resolve(value) for key, value in kwargs.items()},
            )
        except RecursionError:
            raise _too_deep(name) from None

    def finish(self, name: str, result: Any = None, size: int = 0) -> list[str]:
        """`result` is used only if the command is needed; `size` is its bytes when it is sent."""
        self._done += 1
        ready = []
        for waiter in self._waiting[name]:
            needs = self._waits_for[waiter]
            needs.remove(name)
            if not needs:
                ready.append(waiter)
        if self._waiting[name]:
            assert name not in self._results
            self._results[name] = result
            self._sizes[name] = size
        return ready

    @property
    def is_done(self) -> bool:
        return self._done == len(self._calls)

    def answer(self, intermediate: bool = False) -> list[str]:
        """R-R1: the final commands, which no other command refers to; or all of them."""
        return [name for name in self._calls if intermediate or not self._waiting[name]]

    def _refuse_cycles(self) -> None:
        left = {name: len(needs) for name, needs in self._waits_for.items()}
        ready = [name for name, count in left.items() if count == 0]
        while ready:
            name = ready.pop()
            del left[name]
            for waiter in self._waiting[name]:
                left[waiter] -= 1
                if left[waiter] == 0:
                    ready.append(waiter)
        if left:
            circle = sorted(left)[:10]
            raise RpcError("RPC_CYCLE", f"These commands wait for each other: {', '.join(circle)}", commands=circle)


def resolve(call: Call, results: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a command whose results so far came with it."""
    parse = _Parser(call.name, dict.fromkeys([*results, call.name]), set()).parse
    resolver = _Resolver(results, dict.fromkeys(results, 0), lambda _: 0, ARGUMENTS_BYTES_MAX)
    try:
        return (
            [resolver.resolve(parse(arg)) for arg in call.args],
            {key: resolver.resolve(parse(value)) for key, value in call.kwargs.items()},
        )
    except RecursionError:
        raise _too_deep(call.name) from None


def check_names(names: Sequence[str]) -> dict[str, None]:
    """The names in order, or `RPC_INVALID_REQUEST`."""
    if not names:
        raise RpcError("RPC_INVALID_REQUEST", "A request needs at least one command", path="$.cmds")
    if len(names) > COMMANDS_MAX:
        raise RpcError(
            "RPC_INVALID_REQUEST",
            f"A request has at most {COMMANDS_MAX} commands, got {len(names)}",
            path="$.cmds",
            limit=COMMANDS_MAX,
        )
    unique: dict[str, None] = {}
    for at, name in enumerate(names):
        if not 0 < len(name) <= NAME_LENGTH_MAX:
            raise RpcError(
                "RPC_INVALID_REQUEST",
                f"The name of a command has 1 to {NAME_LENGTH_MAX} characters",
                path=f"$.cmds[{at}].name",
                limit=NAME_LENGTH_MAX,
            )
        if name in unique:
            raise RpcError("RPC_INVALID_REQUEST", f"Two commands are named {name!r}", path=f"$.cmds[{at}].name")
        unique[name] = None
    return unique


def walk(result: Any, reference: Reference) -> Any:
    """The part of a result that a reference names."""
    value = result
    for at, step in enumerate(reference.path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, (list, tuple)) and _is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            there = ".".join((reference.name, *reference.path[:at]))
            wanted = ".".join((reference.name, *reference.path))
            raise RpcError(
                "RPC_REFERENCE_NOT_FOUND", f"The result {there!r} has no {step!r}", reference=wanted, missing=step
            )
    return value


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdecimal() and len(step) < 10


class _Container(NamedTuple):
    """A list or an object with a reference somewhere inside."""

    value: Any


class _Resolver:
    """Puts results where references are, in the arguments of one command."""

    def __init__(
        self, results: dict[str, Any], sizes: dict[str, int], size_of: Callable[[Any], int], bytes_max: int
    ) -> None:
        self._results = results
        self._sizes = sizes
        self._size_of = size_of
        self._bytes_max = bytes_max
        self._bytes = 0

    def resolve(self, value: Any) -> Any:
        if isinstance(value, Reference):
            found = walk(self._results[value.name], value)
            self._bytes += self._size_of(found) if value.path else self._sizes[value.name]
            if self._bytes > self._bytes_max:
                limit = self._bytes_max
                raise ResourceError(
                    "RESOURCE_MESSAGE_TOO_LARGE",
                    f"The results that the arguments of one command refer to have at most {limit} bytes",
                    limit=limit,
                )
            return found
        if isinstance(value, _Container):
            if isinstance(value.value, dict):
                return {key: self.resolve(item) for key, item in value.value.items()}
            return [self.resolve(item) for item in value.value]
        return value


class _Parser:
    """Finds the references in the arguments of one command, and notes whom it needs."""

    def __init__(self, own: str, names: Iterable[str], needs: set[str]) -> None:
        self.own = own
        self.names = names
        self.needs = needs

    def parse(self, value: Any) -> Any:
        if isinstance(value, str):
            found = self.find(value)
            return value if found is None or found.name == self.own else self.need(found)
        if isinstance(value, dict):
            return self.parse_object(value)
        if isinstance(value, (list, tuple)):
            items = [self.parse(item) for item in value]
            return _Container(items) if any(isinstance(i, (Reference, _Container)) for i in items) else items
        return value

    def parse_object(self, value: dict[Any, Any]) -> Any:
        if len(value) == 1:
            if "$literal" in value:
                return value["$literal"]
            if isinstance(value.get("$ref"), str):
                found = self.find(value["$ref"])
                if found is None:
                    raise RpcError(
                        "RPC_REFERENCE_NOT_FOUND",
                        f"No command has the result {value['$ref'][:256]!r}",
                        reference=value["$ref"][:256],
                        command=self.own,
                    )
                return self.need(found)
        fields = {key: self.parse(item) for key, item in value.items()}
        return _Container(fields) if any(isinstance(v, (Reference, _Container)) for v in fields.values()) else fields

    def find(self, text: str) -> Reference | None:
        """The command whose name is the text, or the longest prefix of it that ends before a dot."""
        head = text
        if len(head) > NAME_LENGTH_MAX:
            head = head[: max(head.rfind(".", 0, NAME_LENGTH_MAX + 1), 0)]
        while head not in self.names:
            head, dot, _ = head.rpartition(".")
            if not dot:
                return None
        return Reference(head, tuple(text[len(head) + 1 :].split(".")) if len(text) > len(head) else ())

    def need(self, found: Reference) -> Reference:
        self.needs.add(found.name)
        return found


def _unchanged(value: Any) -> Any:
    return value


def _too_deep(command: str) -> RpcError:
    return RpcError("RPC_INVALID_REQUEST", "The arguments are nested too deeply", command=command)
