"""Verification in rounds: for ever, in bounded memory, with the same verdict as one check over everything."""
