"""What we measure, and how: MPREG beside its peers, each role a process of its own, all in one run.

`python -m bench rpc|store|pubsub|topics|locks …` (scripts/bench installs what it needs first). How to read the figures:
docs/performance.md. A group is a module with `PEERS`, `trial(peer, context)` and `AIMS`; see `bench/plan.py`.
"""
