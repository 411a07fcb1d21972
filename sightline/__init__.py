"""Sightline: sequence-to-sequence models that you train yourself and can look inside."""

__version__ = "0.1.0"
