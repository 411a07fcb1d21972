"""The same shards on several machines: Ray Data with a pool of actors, each of which loads the model once.

One task reads and cuts the input, actors translate, and the shards come back here to be kept as parts. Input and model
must lie where every machine sees them; parts and output are written by this process alone.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
import warnings
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError
from sightline.performance import available_processors
from sightline.sharding.inputs import cut
from sightline.sharding.job import Job, Translated
from sightline.sharding.pool import share
from sightline.sharding.run import Runner

if TYPE_CHECKING:
    import pyarrow

# Read by Ray when it is imported, unless they are set: nobody is told that it was used; what it does with GPUs is what
# it will do by default, without its warning of that; its core does not talk between our lines.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
# A Ray of our own may take so many seconds for what it does in one or two on an idle machine. By itself it gives its
# servers and workers 30 to 60, and a machine with much else to do is then told that it has none.
PATIENCE = 600
WAITING = {
    "RAY_gcs_server_port_wait_time_s": PATIENCE,
    "RAY_raylet_start_wait_time_s": PATIENCE,
    "RAY_worker_register_timeout_seconds": PATIENCE,
    "RAY_agent_register_timeout_ms": 1000 * PATIENCE,
}
SHARD, ANSWER = "shard", "answer"  # columns of pickled values: both ends are ours


def on_ray(job: Job, workers: int | None) -> Runner:
    """Translates on the cluster that RAY_ADDRESS names, else on a Ray of its own on this machine.

    There are `workers` actors; None makes one for each processor.
    """

    def run(source: Path, shard_lines: int, done: Collection[int]) -> Generator[Translated]:
        with _connected(workers) as ray:
            dataset = _dataset(ray, job, workers, (source, shard_lines, frozenset(done), job.beside))
            try:
                for row in dataset.iter_rows():
                    answer = pickle.loads(row[ANSWER])
                    if isinstance(answer, str):
                        raise SightlineError(answer)
                    yield answer
            except ray.exceptions.RayError as error:
                first = str(error).strip().splitlines()[0]
                raise SightlineError(
                    f"Ray gave up: {first}; what is done is kept, and the same command goes on, without "
                    "--engine-cluster on this machine alone"
                ) from None

    return run


def _dataset(ray: Any, job: Job, workers: int | None, plan: tuple[Path, int, frozenset[int], dict[str, Path]]) -> Any:
    """Shards go in, translations come out, a row each."""
    from ray.data import ActorPoolStrategy
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    class Shards(Datasource):  # type: ignore[misc]
        """One task that streams: each shard is a block of one row, and few blocks wait to be taken."""

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            about = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ReadTask(lambda: _blocks(*plan), about)]

    resources = ray.cluster_resources()
    count = workers or max(1, int(resources.get("CPU", 1)))
    processors = max(1, int(resources.get("CPU", 1)) // count)
    gpus = min(1, resources.get("GPU", 0) / count)
    # Reading claims no processor, which also keeps Ray from moving it into the actors: one of them would get all.
    shards = ray.data.read_datasource(Shards(), override_num_blocks=1, ray_remote_args={"num_cpus": 0})
    return shards.map_batches(
        Actor,
        fn_constructor_args=(job, processors),
        batch_size=1,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=count),
        num_cpus=processors,
        num_gpus=gpus,
        max_task_retries=1,
    )


class Actor:
    """A model on some machine."""

    def __init__(self, job: Job, processors: int) -> None:
        from sightline.sharding.worker import ShardTranslator

        os.environ.update(share(processors))
        self.mistake: str | None = None
        try:
            self.translate = ShardTranslator(job)
        except SightlineError as error:
            self.mistake = str(error)

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Shards' translations; what is wrong with the job or the model, instead, is told as a text."""
        shards = [pickle.loads(value) for value in batch[SHARD].to_pylist()]
        return _table(ANSWER, [self.mistake or self.translate(shard) for shard in shards])


def _blocks(source: Path, shard_lines: int, done: frozenset[int], beside: dict[str, Path]) -> Iterator[pyarrow.Table]:
    for shard in cut(source, shard_lines, beside):
        if shard.number not in done:
            yield _table(SHARD, [shard])


def _table(column: str, values: list[Any]) -> pyarrow.Table:
    import pyarrow

    return pyarrow.table({column: pyarrow.array([pickle.dumps(value) for value in values], pyarrow.binary())})


@contextmanager
def _connected(workers: int | None) -> Iterator[Any]:
    """Ray, started if it was not, and then ended again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of what its own parts do
        ray = _imported()
        if ray.is_initialized():
            yield ray
            return
        try:
            _start(ray, workers)
            ray.data.DataContext.get_current().enable_progress_bars = False
            yield ray
        finally:
            ray.shutdown()


def _start(ray: Any, workers: int | None) -> None:
    """Joins the cluster that the environment names, or starts Ray here, within this machine."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if os.environ.get("RAY_ADDRESS"):
            ray.init(**quiet)
        else:
            processors = max(available_processors(), workers or 1)
            with _patient(ray._private.services):
                ray.init("local", num_cpus=processors, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    except Exception as error:  # Ray raises all kinds
        raise SightlineError(f"Ray could not be started: {(str(error).splitlines() or [''])[0]}") from None


@contextmanager
def _patient(services: Any) -> Iterator[None]:
    """While a Ray starts, asking for its node waits until there is one.

    That is the one limit which Ray has no setting for: it asks again for 30 seconds and then gives up.
    """
    ask = services.get_node

    def wait(*arguments: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return ask(*arguments)
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    services.get_node = wait
    try:
        yield
    finally:
        services.get_node = ask


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What Ray's environment is to have beside what it has. A cluster of others that is not there is told soon."""
    waiting = {} if environment.get("RAY_ADDRESS") else WAITING
    wanted = {name: str(value) for name, value in {**SETTINGS, **waiting}.items()}
    return {name: value for name, value in wanted.items() if name not in environment}


def _imported() -> Any:
    os.environ.update(_settings(os.environ))
    try:
        import ray
        import ray.data
    except ImportError:
        raise SightlineError("--engine-cluster ray needs Ray: pip install 'sightline[ray]'") from None
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):  # the others write Ray's own logs
            handler.setLevel(logging.ERROR)
    return ray
