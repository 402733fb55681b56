"""The order of the commands of one request (R-R1 to R-R3): who waits for whom, and what each gets. Pure.

plan = Plan(calls)                  refuses what can't be planned before anything runs
plan.start()                        the commands that can run now
plan.arguments(name)                of a command whose inputs are there
plan.finish(name, result)           the commands that can run since
plan.answer()                       once `plan.is_done`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mpreg.errors import RpcError

COMMANDS_MAX = 1_000
NAME_LENGTH_MAX = 256


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
    def __init__(self, calls: Sequence[Call]) -> None:
        names = check_names([call.name for call in calls])
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
                raise RpcError(
                    "RPC_INVALID_REQUEST", "The arguments are nested too deeply", command=call.name
                ) from None
            self._waits_for[call.name] = needs
            for need in needs:
                self._waiting[need].append(call.name)
        self.finals = [name for name in names if not self._waiting[name]]
        self._results: dict[str, Any] = {}
        self._refuse_cycles()

    def start(self) -> list[str]:
        return [name for name, needs in self._waits_for.items() if not needs]

    def arguments(self, name: str) -> tuple[list[Any], dict[str, Any]]:
        """Raises `RPC_REFERENCE_NOT_FOUND` for a path that the result does not have."""
        args, kwargs = self._calls[name]
        return [self._resolve(arg) for arg in args], {key: self._resolve(value) for key, value in kwargs.items()}

    def finish(self, name: str, result: Any) -> list[str]:
        assert name not in self._results
        self._results[name] = result
        ready = []
        for waiter in self._waiting[name]:
            needs = self._waits_for[waiter]
            needs.remove(name)
            if not needs:
                ready.append(waiter)
        return ready

    @property
    def is_done(self) -> bool:
        return len(self._results) == len(self._calls)

    def answer(self, intermediate: bool = False) -> Any:
        """R-R1: the bare result of one command; else the results of the final ones, or of all, by name."""
        assert self.is_done
        if intermediate:
            return {name: self._results[name] for name in self._calls}
        if len(self._calls) == 1:
            return next(iter(self._results.values()))
        return {name: self._results[name] for name in self.finals}

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Reference):
            return walk(self._results[value.name], value)
        if isinstance(value, _Container):
            return value.resolve(self._resolve)
        return value

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

    def resolve(self, resolve: Any) -> Any:
        if isinstance(self.value, dict):
            return {key: resolve(item) for key, item in self.value.items()}
        return [resolve(item) for item in self.value]


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
