"""The parts of `benchmarks/decoding_speed.py`: contenders that translate in turns, each in a process of its own.

The modules that a contender's process loads (`job`, `worker`, `pieces`, `adaptors`) need sentencepiece and the
contender itself, so that they run in a peer's own environment.
"""
