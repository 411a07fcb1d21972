"""The parts of `benchmarks/training_speed.py`: contenders that train in turns, each in a process of its own.

The modules that a contender's process loads (`job`, `plan`, `turns`, `worker`, `adaptors`) need numpy, torch and the
contender itself, so that they run in a peer's own environment.
"""
