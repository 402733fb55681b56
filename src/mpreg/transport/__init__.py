"""Links that carry messages over WebSocket and TCP, plain and TLS: listen, dial, pool, breaker."""
