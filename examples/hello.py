"""The first node: run it with `scripts/serve examples/hello.py`, or `python examples/hello.py`."""

from mpreg import Node

node = Node("hello")


@node.function
async def greet(name: str, times: int = 1) -> str:
    """Says hello."""
    return " ".join([f"Hello, {name}!"] * times)


@node.function
async def add(a: float, b: float) -> float:
    """The sum."""
    return a + b


if __name__ == "__main__":
    node.run()
