"""Other people's tests, run twice, as they are and through the collector: `make compliance`, not `make test`."""
