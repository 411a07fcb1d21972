"""How long a comparison will still take. No torch here."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.training.progress import clock_time


class Course:
    """The runs that are to be trained, by the names of their configurations, in order; all times are in seconds.

    A run takes as long as another of its configuration did, or while there is none, as runs took in the mean.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._ahead = list(names)
        self._training: dict[str, float] = {}
        self._measuring: dict[str, float] = {}

    def known(self, name: str, seconds: float) -> None:
        """A run of this configuration took so long to train."""
        self._training[name] = seconds

    def trained(self, name: str, seconds: float) -> None:
        """The same of a run that was ahead."""
        self.known(name, seconds)
        self._ahead.remove(name)

    def measured(self, name: str, seconds: float) -> None:
        """A run of this configuration took so long to translate the test part, and so on."""
        self._measuring[name] = seconds

    def left(self, current: tuple[float, float] | None = None) -> float | None:
        """The time until all runs are done, None while it is unknown.

        `current`, of the training that goes on, which is the first ahead: the time it took, and the time it has left.
        """
        training = dict(self._training)
        if current is not None:
            training.setdefault(self._ahead[0], sum(current))
        if not training:
            return None
        whole = {name: seconds + self._measuring.get(name, 0.0) for name, seconds in training.items()}
        mean = sum(whole.values()) / len(whole)
        times = [whole.get(name, mean) for name in self._ahead]
        if current is not None:
            times[0] = current[1] + self._measuring.get(self._ahead[0], 0.0)
        return sum(times)

    def told(self) -> str:
        """The time left for all that are ahead, for a person; nothing while it is unknown."""
        seconds = self.left()
        return "" if seconds is None else f"about {clock_time(seconds)} left for all"

    def beyond(self, elapsed: float, left: float | None) -> str:
        """What to add to the time left of the run that is being trained: the time left for all."""
        if left is None or len(self._ahead) < 2:
            return ""
        return f", {clock_time(self.left((elapsed, left)))} for all"
