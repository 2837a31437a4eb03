"""The limits of all HTTP servers: connections, heads, bodies, and turns of peers."""
