"""What the collector costs: the same workloads on a real PostgreSQL, without it and with it, in turns."""
