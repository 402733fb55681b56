"""`python -m mpreg` is `mpreg`."""

from mpreg.cli import main

main()
