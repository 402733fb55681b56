"""MPREG: call functions wherever they live, publish, queue, cache, lock and match.

The layers, from the bottom: `wire` defines every message; `transport` moves frames; `store` and `keyspace` keep what
outlives a process; `rpc` and its sisters decide; `node` and `client` assemble them; `cli` is the command line.
"""

__version__ = "0.1.0"
