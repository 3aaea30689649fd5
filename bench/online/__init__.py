"""The daemon under load: a generator that speaks the wire protocol, throughput and lag (`bench`), and a soak."""
