"""Who takes part."""

from __future__ import annotations

from dataclasses import dataclass

TRANSFORMERS = ("tiny", "small")
ALL = ("tiny", "small", "rnn")


@dataclass(frozen=True)
class Contender:
    """`adaptor` is its module and the name of its environment; `input_feeding` tells how its RNN is built."""

    name: str
    adaptor: str
    about: str
    sizes: tuple[str, ...]
    peer: bool = True
    tuned: bool = False
    input_feeding: bool = False
    compiled: bool = False

    @property
    def out_of_the_box(self) -> bool:
        """Whether it is a peer as it comes."""
        return self.peer and not self.tuned


CONTENDERS = (
    Contender("sightline", "sightline", "Sightline through its own trainer", ALL, peer=False),
    Contender(
        "sightline-compiled",
        "sightline",
        "the same with --compile: torch.compile for the layers, which then share a batch's operations, not its parts",
        TRANSFORMERS,
        peer=False,
        compiled=True,
    ),
    Contender(
        "sightline-input-feeding",
        "sightline",
        "Sightline's luong recipe with GRUs and additive attention, which is how the peers build theirs",
        ("rnn",),
        peer=False,
        input_feeding=True,
    ),
    Contender("marian", "marian", "a plain loop over transformers' MarianMT", TRANSFORMERS),
    Contender(
        "marian-tuned", "marian", "the same loop with glibc's mmap and trim thresholds raised", TRANSFORMERS, tuned=True
    ),
    Contender("opennmt", "opennmt", "OpenNMT-py's model, loss, optimizer and trainer", ALL, input_feeding=True),
    Contender("joeynmt", "joeynmt", "JoeyNMT's model, loss and optimizer", ALL, input_feeding=True),
    Contender("sockeye", "sockeye", "Sockeye's model, loss and optimizer", TRANSFORMERS),
)
YARDSTICK = Contender("matmul", "matmul", "products of 1024 x 1024 matrices", ALL, peer=False)
