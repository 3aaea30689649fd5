"""What an enemy could try, as tests: what takes seconds runs with all others, the rest is marked `attack`."""
