"""What `mpreg keys` does, without the command line: look at, check and keep the keys of a store."""
