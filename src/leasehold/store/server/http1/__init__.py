"""HTTP/1.1 on the port of the store: probes and the JSON gateway."""
