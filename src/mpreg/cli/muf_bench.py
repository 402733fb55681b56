"""`mpreg muf bench`: round trips through this store, asked and answered by this process."""

from __future__ import annotations

import asyncio
import time

import rich_click as click

from mpreg.cli.keys_options import json_option, print_json, run, store_option, store_url


@click.command()
@store_option
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=2.0, show_default=True, help="For each line.")
@json_option
def bench(store: str | None, seconds: float, as_json: bool) -> None:
    """Round trips per second with 1 and with 64 in flight; both units are in this process, so it is a lower bound."""
    run(_bench(store_url(store), seconds, as_json))


async def _bench(url: str, seconds: float, as_json: bool) -> None:
    from mpreg.apps.muf import Unit
    from mpreg.apps.muf.names import new_id

    run_id = new_id()  # two runs at a time must not answer each other
    asker = f"mpreg-bench-asks-{run_id}"
    async with await Unit.connect(asker, url) as asks, await Unit.connect(f"mpreg-bench-{run_id}", url) as answers:
        answers.on_request(issuers=[asker], concurrency=256)(_echo)
        await answers.ready()
        for callers in (1, 64):
            taken_s = await _measure(asks, callers, seconds)
            row = {
                "in_flight": callers,
                "per_second": round(len(taken_s) / seconds),
                "p50_us": round(taken_s[len(taken_s) // 2] * 1e6),
                "p99_us": round(taken_s[len(taken_s) * 99 // 100] * 1e6),
            }
            if as_json:
                print_json(row)
            else:
                click.echo(
                    "{in_flight:>3} in flight  {per_second:>7}/s  p50 {p50_us} us  p99 {p99_us} us".format(**row)
                )


async def _echo(request: object) -> bytes:
    return request.raw  # type: ignore[attr-defined, no-any-return]  # imported only where it is needed


async def _measure(unit: object, callers: int, seconds: float) -> list[float]:
    from mpreg.apps.muf import Unit

    assert isinstance(unit, Unit)
    taken_s: list[float] = []
    end = time.perf_counter() + seconds

    async def ask() -> None:
        while (start := time.perf_counter()) < end:
            await unit.request(b"x" * 64)
            taken_s.append(time.perf_counter() - start)

    async with asyncio.TaskGroup() as asking:
        for _ in range(callers):
            asking.create_task(ask())
    return sorted(taken_s)
