"""Declare the keys of a system once: name, type, TTL, codec; build, parse, document, check and keep them."""
