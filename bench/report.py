"""What a run found: one record a figure, ratios round by round, and both as a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from bench.plan import Aim, Measured
from bench.runner import Outcome

NOISY_CORES = 0.3
"""More than this much CPU used by processes outside the case: the figure is marked."""

Rounds = Sequence[dict[tuple[str, str], Measured]]


class Record(msgspec.Struct, frozen=True):
    """A line of the output. `value` is the median of the rounds; `cpu` the median cores of each process."""

    case: str
    peer: str
    metric: str
    value: float
    unit: str
    min: float
    max: float
    cpu: dict[str, float] = {}
    note: str = ""


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _record(case: str, peer: str, metric: str, unit: str, values: list[float], **rest: object) -> Record:
    middle, low, high = (rounded(value) for value in (statistics.median(values), min(values), max(values)))
    return Record(case, peer, metric, middle, unit, low, high, **rest)  # type: ignore[arg-type]


def _median_cpu(results: list[Measured]) -> dict[str, float]:
    names = {name for result in results for name in result.cpu}
    return {name: statistics.median(result.cpu.get(name, 0.0) for result in results) for name in sorted(names)}


def records(rounds: Rounds) -> list[Record]:
    grouped: dict[tuple[str, str], list[Measured]] = {}
    for measured in rounds:
        for key, result in measured.items():
            grouped.setdefault(key, []).append(result)
    found = []
    for (case, peer), results in grouped.items():
        cpu = _median_cpu(results)
        for metric, (_, unit) in results[0].figures.items():
            values = [result.figures[metric][0] for result in results if metric in result.figures]
            found.append(_record(case, peer, metric, unit, values, cpu=cpu))
    return found


def _figure(measured: dict[tuple[str, str], Measured], case: str, peer: str, metric: str) -> float | None:
    result = measured.get((case, peer))
    return result.figures[metric][0] if result and metric in result.figures else None


def ratios(rounds: Rounds, aims: Iterable[Aim]) -> list[Record]:
    """ours/peer of each aim, divided within each round before the median is taken."""
    found = []
    for aim in aims:
        values = []
        for measured in rounds:
            ours = _figure(measured, aim.case, aim.ours, aim.metric)
            peer = _figure(measured, aim.case, aim.peer, aim.metric)
            if ours is not None and peer:
                values.append(ours / peer)
        if values:
            note = aim.verdict(statistics.median(values))
            found.append(_record(aim.case, f"{aim.ours} / {aim.peer}", f"{aim.metric} ratio", "x", values, note=note))
    return found


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _row(record: Record) -> list[str]:
    spread = "" if record.min == record.max else f"{number(record.min)} .. {number(record.max)}"
    cores = " ".join(f"{name} {used:g}" for name, used in record.cpu.items() if name not in ("all", "other"))
    if record.cpu.get("other", 0) > NOISY_CORES:
        cores += f" (others {record.cpu['other']:g}: noisy)"
    return [record.case, record.peer, record.metric, number(record.value), record.unit, spread, cores + record.note]


def table(found: Sequence[Record], last: str) -> str:
    """Rows of one case beside each other, in the order in which the peers were declared."""
    order = {case: index for index, case in enumerate(dict.fromkeys(record.case for record in found))}
    metrics = {metric: index for index, metric in enumerate(dict.fromkeys(record.metric for record in found))}
    lines = [["case", "peer", "metric", "value", "unit", "min .. max", last]]
    lines += map(_row, sorted(found, key=lambda record: (order[record.case], metrics[record.metric])))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = (3,)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def text(outcome: Outcome, aims: Iterable[Aim]) -> str:
    parts = [table(records(outcome.rounds), "cores used")] if any(outcome.rounds) else []
    if compared := ratios(outcome.rounds, aims):
        parts.append("Ratios, ours / theirs, within each round:\n" + table(compared, "aim"))
    parts += [f"missing: {peer}: {reason}" for peer, reason in outcome.missing.items()]
    parts += [f"failed: {peer}: {reason}" for peer, reason in outcome.failed.items()]
    return "\n\n".join(parts)


def lines(outcome: Outcome, aims: Iterable[Aim]) -> list[str]:
    found: list[object] = [*records(outcome.rounds), *ratios(outcome.rounds, aims)]
    found += [{"peer": peer, "missing": reason} for peer, reason in outcome.missing.items()]
    found += [{"peer": peer, "failed": reason} for peer, reason in outcome.failed.items()]
    return [msgspec.json.encode(record).decode() for record in found]
