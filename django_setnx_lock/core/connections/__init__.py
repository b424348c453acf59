"""How requests travel: connections, retries, clusters, Sentinel, errors."""
