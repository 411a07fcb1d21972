"""What a user can ask of a translation that cannot be: each mistake gets one line, exit code 2, and no output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command, write_lines

FILES = {
    "terms.tsv": ["b\tH", "f\tE\tF"],
    "long.tsv": ["b\tA B C D E F"],
    "none.tsv": ["# no terms", ""],
    "broken.tsv": ["b\tH", "c"],
    "few.txt": ["A"],
    "blank.txt": [""],
    "words.txt": ["1", "B", "3"],
    "strange.txt": ["A", "B ü", "C"],
}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--glossary", "long.tsv", "--max-length", 3],
            "in.txt, line 2: 'A B C D E F', which must be there, needs 6 tokens, and this translation may have 3: "
            "leave it out, or raise max_length, max_ratio or max_extra",
        ),
        (
            ["--prefix", "A B C D", "--max-length", 3],
            "in.txt, line 1: its prefix has 4 tokens, more than max_length = 3: shorten it or raise max_length",
        ),
        (["--prefixes", "few.txt"], "prefixes: 1 for 3 lines: give one for each line"),
        (["--require-file", "few.txt"], "requires: 1 for 3 lines: give one for each line"),
        (["--seeds", "words.txt"], "words.txt, line 2: 'B': give a number from 0 to 2**64 - 1"),
        (["--require", " "], "a word that must be there is empty: leave it out"),
        (["--require", "xyz"], "'xyz' must be there, but this model's vocabulary cannot spell it: leave it out"),
        (["--require", "A", "--strategy", "sample"], "a word that must be there needs beam search"),
        (["--prefix", "A xyz"], "this model's vocabulary cannot spell 'xyz' of the prefix 'A xyz': begin without it"),
        (["--prefixes", "strange.txt"], "in.txt, line 2: this model's vocabulary cannot spell 'ü' of the prefix 'B ü'"),
        (
            ["--strategy", "sample", "--samples", 2, "--n-best", 3],
            "samples=2 and n_best=3: all that is drawn is given, so say one of them",
        ),
        (["--glossary", "none.tsv"], "none.tsv: no terms in it: write 'term<TAB>translation', one a line"),
        (["--glossary", "broken.tsv"], "broken.tsv, line 2: no translation of 'c': write 'term<TAB>translation'"),
        (["--glossary", "no.tsv"], "no.tsv: no such file"),
        (
            ["--glossary", "terms.tsv", "--strategy", "sample"],
            "a glossary needs beam search: sampling cannot promise its terms",
        ),
        (
            ["--glossary", "terms.tsv", "--beam", 4, "--groups", 2],
            "a glossary needs a beam of one group: leave out groups=2",
        ),
        (["--forbid-file", "blank.txt"], "blank.txt: no words in it: write one a line"),
        (["--strategy", "bem"], "unknown strategy 'bem'; did you mean 'beam'?"),
        (["--stopping", "never"], "unknown stopping 'never'; valid: first, enough, hopeless"),
        (["--length-penalty", "gnmd"], "unknown length_penalty 'gnmd'; did you mean 'gnmt'?"),
        (
            ["--strategy", "greedy", "--n-best", 3],
            "n_best is 3: give 1, since greedy search finds one, or choose beam",
        ),
        (["--strategy", "mbr", "--beam", 1], "mbr chooses among several candidates: give samples or beam above 1"),
        (["--strategy", "mbr", "--utility", "bleurt"], "unknown utility 'bleurt'; did you mean 'bleu'?"),
        (["--beam", 5, "--groups", 2], "beam is 5: give a multiple of 2, the number of groups"),
        (["--min-length", 5, "--max-length", 3], "max_length is 3: give at least 1, and no less than min_length"),
        (["--alpha", 250, "--engine", "pytorch"], "alpha is 250.0: give a number from 0 to 10"),
        (["--alpha", "inf"], "alpha is inf: give a number from 0 to 10"),
        (["--alpha", 100000, "--length-penalty", "gnmt"], "alpha is 100000.0: give a number from 0 to 10"),
        (["--min-length", 10_000_000], "min_length is 10,000,000: give at most 10,000 for this model"),
        (["--coverage-penalty", "inf", "--json"], "coverage_penalty is inf: give a number from 0 to 1,000"),
        (["--coverage-penalty", "1e308", "--json"], "coverage_penalty is 1e+308: give a number from 0 to 1,000"),
        (
            ["--beam", 4, "--groups", 4, "--diversity", "1e308", "--n-best", 4],
            "diversity is 1e+308: give a number from 0 to 1,000",
        ),
        (["--top-p", 0], "top_p is 0.0: give a share of the probability, above 0 and at most 1 (all)"),
        (["--seed", -1], "seed is -1: give a number from 0 to 2**64 - 1"),
        (["--engine", "torch"], "unknown engine 'torch'; did you mean 'pytorch'?"),
        (
            ["--engine", "ctranslate2", "--strategy", "sample"],
            "engine cannot draw the samples that a seed and a sentence stand for; the pytorch engine can",
        ),
        (
            ["--engine", "ctranslate2", "--prefix", "A"],
            "the ctranslate2 engine cannot keep to a prefix with a beam of more than 1 (with beam 1 it can); "
            "the pytorch engine can",
        ),
        (["--engine", "pytorch", "--compute", "int16"], "compute=int16: the pytorch engine has float32 and int8"),
    ],
    ids=str,
)
def test_options_that_cannot_be(
    options: list[Any], told: str, command: Command, trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in FILES.items():
        write_lines(tmp_path / name, lines)
    source = write_lines(Path("in.txt"), ["a c", "a b c", "h g"])
    done = command("translate", trained("transformer"), source, *options)
    assert told in done.mistake()
    assert done.out == ""


@pytest.mark.parametrize(
    ("recipe", "options", "told"),
    [
        (
            "seq2seq",
            ["--coverage-penalty", 0.2],
            "coverage_penalty needs attention weights and this model gives none: set it to 0",
        ),
        ("seq2seq", ["--align"], "this model has no attention, so it has no alignment to show"),
        (
            "seq2seq",
            ["--engine", "ctranslate2"],
            "cannot run a decoder without attention (seq2seq); the pytorch engine",
        ),
        ("luong", ["--engine", "ctranslate2"], "the ctranslate2 engine cannot run a recurrent decoder (luong)"),
        ("bahdanau", ["--compute", "int16"], "compute=int16: the pytorch engine has float32 and int8"),
    ],
    ids=str,
)
def test_what_a_recipe_cannot_do(recipe: str, options: list[Any], told: str, command: Command, trained: Any) -> None:
    done = command("translate", trained(recipe), *options, stdin=b"a b\n")
    assert told in done.mistake()
    assert done.out == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--strategy", "mbr"], "with strategy mbr"),
        (["--groups", 5], "with groups=5"),
        (["--check"], "with check"),
        (["--retry"], "with retry"),
        (["--workers", 1], "--live and --workers do not go together"),
        (["--n-best", 2], "--live shows plain text"),
        (["--strategy", "sample", "--samples", 2], "--live shows plain text"),
        (["--engine", "ctranslate2"], "the ctranslate2 engine cannot show a translation while it is made"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_while_it_is_made(options: list[Any], told: str, command: Command, trained: Any) -> None:
    done = command("translate", trained("transformer"), "--live", *options, stdin=b"a b\n")
    assert done.code == 2
    assert told in done.err.splitlines()[-1]
    assert done.out == ""


@pytest.mark.parametrize(
    ("recipe", "options", "told"),
    [
        ("transformer", ["--strategy", "mbr", "--utility", "bleurt"], "unknown utility 'bleurt'"),
        ("seq2seq", ["--coverage-penalty", 0.2], "coverage_penalty needs attention weights"),
        ("transformer", ["--glossary", "terms.tsv", "--groups", 5], "a glossary needs a beam of one group"),
        ("transformer", ["--prefixes", "few.txt"], "few.txt: 1 prefixes for the 3 lines of in.txt"),
        ("transformer", ["--strategy", "sample", "--seeds", "words.txt"], "words.txt, line 2: 'B'"),
    ],
    ids=str,
)
def test_mistakes_are_told_before_any_shard_is_translated(
    recipe: str,
    options: list[Any],
    told: str,
    command: Command,
    trained: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in FILES.items():
        write_lines(tmp_path / name, lines)
    source = write_lines(Path("in.txt"), ["a c", "a b c", "h g"])
    done = command("translate", trained(recipe), source, "--output", "out.txt", "--workers", 1, *options)
    assert done.code == 2
    assert told in done.err.splitlines()[-1]
    assert not (tmp_path / "out.txt").exists()
    assert not (tmp_path / "out.txt.parts").exists()


def test_a_mistake_of_one_line_of_a_stream_is_told_with_its_number(
    command: Command, trained: Any, tmp_path: Path
) -> None:
    terms = write_lines(tmp_path / "terms.tsv", FILES["long.tsv"])
    done = command("translate", trained("transformer"), "--glossary", terms, "--max-length", 4, stdin=b"a\nb\n")
    assert done.out == "A\n"  # what was before it comes out
    assert "standard input, line 2: 'A B C D E F', which must be there, needs 6 tokens" in done.mistake()
