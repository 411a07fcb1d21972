"""Decoding speed, Sightline and its peers side by side: the same model, the same text, in turns in one run.

    python benchmarks/decoding_speed.py --data DIR --model FOLDER [--tatoeba DIR] [--peer-python transformers=PATH …]

DIR holds `test2016.tok.en.gz` and `test2016.tok.de.gz` of Multi30k, that of --tatoeba `test-a.en-de.tsv.gz`. FOLDER is
a Sightline model that all can run: a Transformer that normalises after its sublayers, which MarianMT needs, with
sinusoids, all embeddings tied and one sentencepiece vocabulary. With DATA Multi30k's folder,

    sightline train examples/multi30k/transformer.yaml --set model.norm_position=post --output FOLDER
        --set training.learning_rate=0.002 --source DATA/train.tok.en.gz --target DATA/train.tok.de.gz
        --valid-source DATA/val.tok.en.gz --valid-target DATA/val.tok.de.gz

trains one. Its training text must still be there: the shortlist is learnt from it. Without a model of this kind all
but transformers take part.

Give `--tatoeba` only with a model that was trained with such text. One that was not repeats itself up to its limit, and
CTranslate2 called directly has one limit for a whole file: what is measured then is who stops first.

Each contender translates in a process of its own, which waits while the others compute.
A peer runs in the Python named by `--peer-python` or by the environment variable `SIGHTLINE_PEER_TRANSFORMERS` and so
on, else in this one; what cannot run is left out with a line that says why. A round takes about 9 minutes on two
cores, the first one 18: the two that search with untrained weights run in that alone. Results go to
`benchmarks/results/decoding_speed.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.decoding import report
from benchmarks.decoding.arena import Arena
from benchmarks.decoding.contenders import CONTENDERS
from benchmarks.decoding.job import NO_EXPORT
from benchmarks.decoding.material import Material, read_sets
from benchmarks.speed.common import machine, pythons, say, without_paths
from benchmarks.speed.processes import Failed
from sightline.errors import SightlineError
from sightline.folder import open_files
from sightline.performance import available_processors

RESULTS = Path(__file__).parent / "results"
NOTES = (
    "times its rival: Sightline's CTranslate2 engine to CTranslate2 called directly with the same type of numbers, its "
    "PyTorch engine to transformers; the median of the rounds' own ratios.",
    "Tokens are counted by Sightline's tokenizer on the text that was written, end symbols included; where weights are "
    "untrained, as they were written.",
    "CTranslate2 called directly has a worker of one thread for each processor, sorts by length itself, uses AVX-512 "
    "where Sightline lets it, and gets the size of a batch that was fastest for each beam in a trial before the rounds "
    "(batch_tokens).",
    "The shortlist is learnt from the model's training text, and lies in an export of the model. A sentence that goes "
    "alone may use what its own tokens bring, in a file what its batch brings.",
    "All but Sightline tokenise whole sentences with sentencepiece and nothing else. No contender keeps translations: "
    "a line that comes again is translated again.",
    "OpenNMT-py and JoeyNMT cannot load the model, so they search with untrained weights of the same size and write as "
    "many tokens as the mean source of a batch has: their speed can be compared, they have no BLEU.",
    "first translation: from the start of a process to the end of one short translation, its files being in the "
    "system's memory already. peak memory: over all cases.",
)


def main() -> None:
    """Measures and records."""
    options = parse(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="decoding-speed-") as folder:
        try:
            results = run(options, options.work or Path(folder))
        except (Failed, SightlineError) as error:
            print(f"decoding_speed: {error}", file=sys.stderr)
            sys.exit(2)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "decoding_speed.json").write_text(json.dumps(results, indent=1) + "\n")
    page = report.markdown(results)
    (options.output / "decoding_speed.md").write_text(page)
    print(page)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tok files")
    parser.add_argument("--model", type=Path, required=True, help="a Sightline model folder")
    parser.add_argument("--tatoeba", type=Path, help="folder of test-a.en-de.tsv.gz")
    parser.add_argument("--contenders", default=",".join(contender.name for contender in CONTENDERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=5, help="how often test2016 is repeated in the larger file")
    parser.add_argument("--singles", type=int, default=100, help="sentences that go one at a time, in each round")
    parser.add_argument("--limit", type=int, help="only so many sentences of each set, for a try")
    parser.add_argument("--threads", type=int, help="default: the processors this process may use")
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, help="keep the exports and the contenders' logs in this folder")
    options = parser.parse_args(arguments)
    options.contenders = options.contenders.split(",")
    known = [contender.name for contender in CONTENDERS]
    for wrong in sorted({*options.contenders} - {*known}):
        parser.error(f"unknown contender '{wrong}': there are {', '.join(known)}")
    if min(options.rounds, options.repeat, options.singles) < 1:
        parser.error("--rounds, --repeat and --singles must be at least 1")
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    names = {contender.adaptor for contender in CONTENDERS if contender.peer}
    options.pythons = pythons(names, options.peer_python, parser)
    return options


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything that is recorded."""
    threads = options.threads or available_processors()
    sets = read_sets(options.data, options.tatoeba, options.repeat, options.limit)
    material = Material(open_files(options.model), folder.resolve(), sets, options.singles)
    material.save()
    unexported = material.export()
    wanted = [one for one in CONTENDERS if one.name in options.contenders]
    outcome = Arena(material, threads, options.pythons, say).measure(wanted, options.rounds)
    for name, why in outcome.skipped.items():
        outcome.skipped[name] = explained(why, unexported, options.model)
    if not outcome.turns:
        raise Failed("no contender could run")
    return {
        "command": f"python benchmarks/decoding_speed.py {shlex.join(without_paths(sys.argv[1:]))}",
        "machine": machine(),
        "model": described(material),
        "settings": {"threads": threads, **{name: getattr(options, name) for name in ("rounds", "repeat", "singles")}},
        **report.summarise(wanted, outcome),
        "notes": list(NOTES),
    }


def explained(why: str, unexported: Mapping[str, str], model: Path) -> str:
    """Why a contender was left out, with the reason why it lacks an export, and without this machine's paths."""
    reason = unexported.get(why.removeprefix(NO_EXPORT))
    return (why if reason is None else f"{why} ({reason})").replace(f"{model}: ", "")


def described(material: Material) -> str:
    """The model in a line."""
    sizes, model = material.sizes(), material.files.config.model
    layers = f"{model.encoder.layers}+{model.decoder.layers} layers of width {sizes['width']}"
    inner = f"feed-forward {sizes['feedforward']}, {sizes['heads']} heads"
    return f"A Transformer of {layers}, {inner}, vocabulary {sizes['vocabulary']:,}, {model.norm_position}-norm"


if __name__ == "__main__":
    main()
