"""The contract: every message is one struct, and both encodings follow from it. No I/O here."""
