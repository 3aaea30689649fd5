"""The wire format between collectors and the verifier. So far only its name is here."""

__version__ = "0.1.0"
