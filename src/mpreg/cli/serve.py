"""`mpreg serve`: run a node until SIGTERM or SIGINT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

if TYPE_CHECKING:
    from mpreg.node import Node


class _Port(click.ParamType[int | str]):
    name = "port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if isinstance(value, int) or value == "off":
            return value if isinstance(value, int) else "off"
        assert isinstance(value, str)
        if not (value.isascii() and value.isdecimal() and int(value) <= 65535):
            self.fail(f"{value!r} is not a port: 1 to 65535, 0 for a free one, or off", param, ctx)
        return int(value)


PORT = _Port()


@click.command()
@click.argument("app", required=False)
@click.option("--host", help="The address to listen on. Default: 127.0.0.1, which only this machine can reach.")
@click.option("--ws", type=PORT, help="Port of the WebSocket listener; 0 takes a free one, off turns it off. [6666]")
@click.option("--wss", type=PORT, help="… with TLS. [off]")
@click.option("--tcp", type=PORT, help="Port of the TCP listener. [6668]")
@click.option("--tcps", type=PORT, help="… with TLS. [off]")
@click.option("--tls-cert", metavar="F", help="PEM file: the certificate, and its chain.")
@click.option("--tls-key", metavar="F", help="PEM file: its key.")
@click.option("--tls-ca", metavar="F", help="PEM file: who issues the certificates of clients.")
@click.option("--name", help="How the node calls itself.")
@click.option("--data-dir", metavar="DIR", help="Where the embedded store keeps its data. [mpreg-data]")
@click.option("--store", metavar="URL", help="A Valkey or Redis server, `embedded:` for one of its own, or `off`.")
@click.option(
    "--durability",
    type=click.Choice(["memory", "everysec", "always"]),
    help="What the embedded store may lose in a crash: all, a second, nothing acknowledged. [everysec]",
)
@click.option(
    "--share-store", is_flag=True, default=None, help="Offer the embedded store to nodes with `--store shared:`."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="So many nodes in processes of their own, one cluster behind the same ports. [1]",
)
@click.option("--cluster", metavar="ID", help="Be a node of this cluster.")
@click.option(
    "--join",
    metavar="URL",
    multiple=True,
    help="Where a node of the cluster may be found; also file:PATH, dns:NAME:PORT, srv:NAME. May be repeated.",
)
@click.option("--cluster-secret-file", metavar="F", help="What the nodes of the cluster share: 16 bytes or more.")
@click.option(
    "--advertise", metavar="URL", multiple=True, help="Where the other nodes reach this one. [its own listeners]"
)
@click.option("--cluster-port", type=PORT, help="Port of a TCP listener for other nodes only. [off]")
@click.option(
    "--membership",
    type=click.Choice(["lan", "wan", "local"]),
    help="How fast the death of a node is noticed, and how much talk that costs. [lan]",
)
@click.option("--muf", is_flag=True, default=None, help="Answer requests that are plain keys of the store, and ask so.")
@click.option("--muf-unit", metavar="NAME", help="… as this unit. [MPREG]")
@click.option("--muf-topics", is_flag=True, default=None, help="… and publish what units say: muf.<status>.<unit>.")
@click.option("--config", metavar="F", help="TOML file of settings; the environment and options go over it.")
@click.option("--ready-file", metavar="F", help="Written as JSON once the node accepts connections.")
@click.option("--log", type=click.Choice(["text", "json"]), help="How log lines look. [text]")
@click.option("--debug", is_flag=True, default=None, help="Errors carry tracebacks; more is logged.")
def serve(app: str | None, config: str | None, ready_file: str | None, workers: int | None, **settings: Any) -> None:
    """Run a node until SIGTERM or SIGINT, with the functions of APP.

    APP is a Python file or a module, and the name of a node in it where there are several: `app.py`, `app.py:node`,
    `package.module:node`. Without it the node has the built-in functions only.
    """
    from mpreg.node import Node
    from mpreg.node.loading import load_node
    from mpreg.node.run import run
    from mpreg.node.workers import end_with_parent, run_workers

    end_with_parent()
    node = Node() if app is None else load_node(app)
    for several in ("join", "advertise"):
        settings[several] = settings[several] or None
    if workers is not None and workers > 1:
        run_workers(app or "", node, workers, file=config, overrides=settings, ready_file=ready_file)
        return
    run(node, file=config, overrides=settings, ready_file=ready_file, settled=_add_parts)


def _add_parts(node: Node) -> None:
    """What the settings ask for beside the node."""
    if node.settings.muf or node.settings.muf_topics:
        from mpreg.apps.muf.bridge import add

        add(node)
