"""Several configurations trained on the same data, and one report of all: `run.compare` does it."""
