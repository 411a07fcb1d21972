"""Decoding as a person asks for it: prefixes, glossaries, forbidden words, samples, second attempts, in text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline import failures
from sightline.errors import SightlineError
from sightline.translator import Translator
from tests.commands import RECIPES, Command, write_lines

SOURCES = ["a b c", "d", "h g f e"]


@pytest.fixture(scope="module", params=RECIPES)
def translator(request: pytest.FixtureRequest, trained: Any) -> Translator:
    return sightline.load(trained(request.param))


def texts(translator: Translator, sources: list[str], **options: Any) -> list[str]:
    return [one.text for one in translator.translate(sources, align=False, **options)]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample", "mbr"])
def test_every_strategy_for_every_recipe(strategy: str, translator: Translator) -> None:
    options = {"strategy": strategy, "samples": 4 if strategy == "mbr" else 1}
    together = texts(translator, SOURCES, **options)
    assert all(together)
    assert together == [texts(translator, [source], **options)[0] for source in SOURCES]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_a_prefix_is_kept_and_counted(strategy: str, translator: Translator) -> None:
    found = translator.translate(SOURCES, prefix="H G", strategy=strategy)
    assert all(one.text.startswith("H G") for one in found)
    assert all(len(one.token_log_probs) == len(one.tokens) + one.finished for one in found)
    lines = texts(translator, SOURCES, prefixes=["", "A", "B A"], strategy=strategy)
    assert lines[0] == texts(translator, SOURCES[:1], strategy=strategy)[0]
    assert [lines[1][:1], lines[2][:3]] == ["A", "B A"]
    with pytest.raises(SightlineError, match="prefixes: 2 for 3 lines: give one for each line"):
        texts(translator, SOURCES, prefixes=["", "A"])
    with pytest.raises(SightlineError, match="input, line 3: no entry for it in prefixes: there are 2"):
        list(translator.stream(iter(SOURCES), prefixes=["", "A"]))


def test_a_glossary_and_what_became_of_its_terms(translator: Translator, tmp_path: Path) -> None:
    terms = write_lines(tmp_path / "terms.tsv", ["b\tH", "f\tE\tF"])
    found = translator.translate(SOURCES, glossary=terms)
    assert "H" in found[0].text.split()
    assert [(one.text, one.honoured) for one in found[0].terms or []] == [("b", True)]
    assert found[1].terms == []
    assert found[2].terms is not None
    assert found[2].terms[0].honoured
    with pytest.raises(SightlineError, match="sampling cannot promise"):
        texts(translator, SOURCES, glossary=terms, strategy="sample")


def test_forbidden_words_do_not_come(translator: Translator) -> None:
    for strategy in ("greedy", "beam", "sample"):
        found = texts(translator, SOURCES, forbid=["B", "D"], strategy=strategy)
        assert not {"B", "D"} & {word for text in found for word in text.split()}


def test_one_forbidden_word_is_a_word_and_a_path_is_a_file(translator: Translator, tmp_path: Path) -> None:
    plain = texts(translator, SOURCES, forbid=["B"])
    assert texts(translator, SOURCES, forbid="B") == plain
    assert texts(translator, SOURCES, forbid=write_lines(tmp_path / "words.txt", ["B"])) == plain


def test_a_translation_shown_as_it_is_made(translator: Translator) -> None:
    shown: tuple[dict[str, Any], ...] = (
        {"strategy": "greedy"},
        {"beam": 4},
        {"strategy": "sample", "seed": 3},
        {"prefix": "C"},
        {"require": "H"},
    )
    for options in shown:
        for source in SOURCES:
            assert "".join(translator.live(source, **options)) == texts(translator, [source], **options)[0]
    assert not list(translator.live("  "))
    for options in ({"strategy": "mbr"}, {"groups": 5}, {"check": True}, {"strategy": "sample", "n_best": 2}):
        with pytest.raises(SightlineError, match="cannot be shown while it is made"):
            translator.live("a", **options)


def test_flags_and_second_attempts(translator: Translator) -> None:
    stuck = " ".join("A" * 12)
    once = translator.translate("a b", check=True, prefix=stuck)
    assert "loop" in {flag.name for flag in once.flags or []}
    again = translator.translate(["a b", "a b c d"], retry=True, prefix=stuck)
    assert all(one.first or one.retry for one in again)
    assert all(one.text.startswith(stuck) for one in again)
    json.dumps([one.as_dict() for one in again])
    assert translator.translate("a b").flags is None


def test_checks_see_attention_whether_it_is_shown_or_not(
    translator: Translator, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        failures.CHECKS,
        "dropped",
        lambda one, expected: None if one.weights is None else failures.Flag("seen", str(one.weights.shape), 1.0),
    )
    attends = translator.config.model.recipe != "seq2seq"
    for options in (["--check"], ["--retry"], ["--check", "--beam", 1]):
        done = command("translate", translator.files.path, "--json", *options, stdin=b"a b c\n")
        row = json.loads(done.out)
        assert ("seen" in {flag["name"] for flag in row["flags"]}) == attends, done
        assert "alignment" not in row
        for attempt in ("first", "retry"):
            assert "alignment" not in row.get(attempt, {})
    assert command("translate", translator.files.path, "--retry", stdin=b"a b c\n").out.count("\t") == 0
    lazily = translator.translate("a b c", check=True)
    assert (lazily.links is not None) == attends


def test_words_that_must_be_there(translator: Translator, tmp_path: Path) -> None:
    (one,) = translator.translate(SOURCES[:1], require="H")
    assert "H" in one.text.split()
    assert [(word.text, word.honoured) for word in one.required or []] == [("H", True)]
    two = translator.translate(SOURCES, require=["G H"], requires=[["E"], [], "F"])
    assert all("G H" in one.text for one in two)
    assert ["E" in two[0].text.split(), "F" in two[2].text.split()] == [True, True]
    assert [len(one.required or []) for one in two] == [2, 1, 2]
    assert two[0].as_dict()["required"][1] == {"text": "E", "honoured": True}
    assert two[1].as_dict().get("terms") is None
    lines = write_lines(tmp_path / "words.txt", ["E\tH", "", "F"])
    assert [len(one.required or []) for one in translator.translate(SOURCES, requires=lines)] == [2, 0, 1]
    terms = write_lines(tmp_path / "terms.tsv", ["b\tH"])
    both = translator.translate(SOURCES[0], require="H", glossary=terms)
    assert both.text.split().count("H") == 1  # asked for once, for two reasons
    assert both.required is not None
    assert both.required[0].honoured
    twice = translator.translate(SOURCES[0], require=["H", "H"])
    assert twice.text.split().count("H") >= 2
    short = translator.translate("a b c", require=["G", "H"], max_length=1)
    assert [word.honoured for word in short.required or []].count(False) == 1


def test_empty_lines_have_what_was_asked_for(translator: Translator) -> None:
    """What must be there is missing, and what was typed for them is their text: nothing is left to a model."""
    lines = ["a b", "", " "]
    found = translator.translate(lines, require="G", requires=[[], ["H"], []])
    assert [[(word.text, word.honoured) for word in one.required or []] for one in found[1:]] == [
        [("G", False), ("H", False)],
        [("G", False)],
    ]
    begun = translator.translate(lines, prefixes=["", "H G", ""], requires=[[], ["G"], []], align=False)
    assert [(one.text, one.tokens, one.links) for one in begun[1:]] == [("H G", [], None), ("", [], None)]
    assert [word.honoured for word in begun[1].required or []] == [True]
    assert "".join(translator.live("", prefix="H G")) == "H G"
    assert translator.translate("", prefix="H G").words == ["H", "G"]
    with pytest.raises(SightlineError, match="line 2: this model's vocabulary cannot spell 'xyz'"):
        translator.translate(lines, prefixes=["", "xyz", ""])
    with pytest.raises(SightlineError, match="line 2: no entry for it in prefixes"):
        list(translator.stream(iter(lines), prefixes=["A"]))


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ([], set()),
        (["--align"], {"source_words", "words", "alignment"}),
        (["--glossary", "terms.tsv"], {"terms"}),
        (["--require", "H"], {"required"}),
        (["--require-file", "words.txt"], {"required"}),
        (["--check"], {"flags"}),
        (["--retry"], {"flags"}),
        (["--n-best", 2], {"others"}),
        (["--strategy", "sample", "--samples", 2], {"others"}),
    ],
)
def test_the_fields_of_a_record(
    options: list[Any], more: set[str], trained: Any, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/decoding/README.md tells; only of an empty line there are no others."""
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "terms.tsv", ["b\tH"])
    write_lines(tmp_path / "words.txt", ["E", "F"])
    source = write_lines(tmp_path / "in.txt", ["a b c", ""])
    done = command("translate", trained("transformer"), source, "--json", *options)
    assert done.code == 0, done
    always = {"source", "text", "score", "log_prob", "tokens", "token_log_probs", "finished"}
    full, empty = [json.loads(row).keys() - {"first", "retry"} for row in done.out.splitlines()]
    assert (full, empty) == (always | more, always | more - {"others"})


def test_each_line_has_its_own_seed(translator: Translator) -> None:
    options: dict[str, Any] = {"strategy": "sample", "temperature": 9.0}
    alone = [texts(translator, ["a b c"], seed=seed, **options)[0] for seed in (1, 2, 3)]
    assert texts(translator, ["a b c"] * 3, seeds=[1, 2, 3], **options) == alone
    assert len({*alone}) > 1
    assert texts(translator, SOURCES, seeds=[1, 2, 3], beam=2) == texts(translator, SOURCES, beam=2)
    with pytest.raises(SightlineError, match="seed is -1"):
        texts(translator, SOURCES, seeds=[1, -1, 3], **options)


def test_n_best_of_samples_are_samples(translator: Translator) -> None:
    options: dict[str, Any] = {"strategy": "sample", "temperature": 9.0}
    one = translator.translate("a b c", n_best=3, **options)
    two = translator.translate("a b c", samples=3, **options)
    assert [other.text for other in one.others] == [other.text for other in two.others]
    assert len(one.others) == 2


def test_a_utility_of_ones_own(translator: Translator) -> None:
    found = translator.translate("a b c", strategy="mbr", beam=4, utility=lambda one, other: -len(one))
    every = translator.translate("a b c", beam=4, n_best=4)
    assert len(found.text) == min(len(one.text) for one in [every, *every.others])


def test_mistakes(translator: Translator) -> None:
    for options, told in (
        ({"prefix": "A", "prefixes": ["B"]}, "give one of them"),
        ({"utility": "rouge", "strategy": "mbr"}, "unknown utility 'rouge'"),
        ({"prefix": "A xyz"}, "cannot spell 'xyz'"),
        ({"glosary": "x"}, "did you mean 'glossary'?"),
        ({"strategy": "bean"}, "did you mean 'beam'?"),
        ({"beam": "5"}, "beam is '5': give a whole number"),
        ({"beam": 2.5}, "beam is 2.5: give a whole number"),
        ({"max_length": "5"}, "max_length is '5': give a whole number"),
        ({"min_length": "5"}, "min_length is '5': give a whole number"),
        ({"strategy": "sample", "samples": "2"}, "samples is '2': give a whole number"),
        ({"seeds": ["1", "2", "3"]}, "seed is '1': give a number from 0"),
        ({"seeds": 3}, "seeds is 3: give a list with an entry for each line"),
        ({"prefix": ["A", "B", "C"]}, "a list of them is prefixes"),
        ({"prefixes": ["B", None, ""]}, 'prefixes has None: give a text for each line, "" for none'),
        ({"requires": [["H"], None, []]}, "requires has None: give a word or phrase, or a list of them"),
        ({"require": 3}, "require has 3: give a word or phrase, or a list of them"),
        ({"forbid": ["A", 3]}, "forbid has 3: give a word or phrase, or a list of them"),
        ({"glossary": {"a": "H"}}, "give a sightline.glossary.Glossary, or the name of a term file"),
        ({"utility": 3, "strategy": "mbr"}, "unknown utility '3'; valid: chrf, bleu"),
        ({"utility": lambda one, other: "much", "strategy": "mbr"}, "not a number: mend the function that gives it"),
    ):
        with pytest.raises(SightlineError, match=told):
            texts(translator, SOURCES, **options)
    for wrong in (None, 3, b"a", ["a", None]):
        with pytest.raises(SightlineError, match="give text, or a tuple with the text of each source"):
            translator.translate(["a", wrong])  # type: ignore[list-item]


def test_texts_and_wishes_may_come_one_by_one(translator: Translator) -> None:
    plain = texts(translator, SOURCES, seeds=[1, 2, 3], strategy="sample")
    found = translator.translate(iter(SOURCES), seeds=iter([1, 2, 3]), strategy="sample")  # type: ignore[arg-type]
    assert [one.text for one in found] == plain


def test_the_command_line(trained: Any, command: Command, tmp_path: Path) -> None:
    model = trained("transformer")
    source = write_lines(tmp_path / "in.txt", SOURCES)
    terms = write_lines(tmp_path / "terms.tsv", ["b\tH"])
    begun = write_lines(tmp_path / "begun.txt", ["H", "G", "F"])
    line = ["translate", model, source]
    assert command(*line, "--prefixes", begun).out.split("\n")[1].startswith("G")
    assert command(*line, "--live").out == command(*line).out
    assert command(*line, "--live", "--prefixes", begun).out == command(*line, "--prefixes", begun).out
    one = command(*line, "--strategy", "sample", "--n-best", 2, "--seed", 3).out
    assert one == command(*line, "--strategy", "sample", "--samples", 2, "--seed", 3).out
    assert len(one.splitlines()) == 6
    rows = [
        json.loads(row) for row in command(*line, "--require", "H", "--require-file", begun, "--json").out.splitlines()
    ]
    assert [[word["text"] for word in row["required"]] for row in rows] == [["H", "H"], ["H", "G"], ["H", "F"]]
    assert all(word["honoured"] for row in rows for word in row["required"])
    assert command(*line, "--output", tmp_path / "out.jsonl").code == 0
    assert [json.loads(row)["source"] for row in (tmp_path / "out.jsonl").read_text().splitlines()] == SOURCES
    assert command(*line, "--patience", 2).out.splitlines() == texts(sightline.load(model), SOURCES, patience=2.0)
    rows = [json.loads(row) for row in command(*line, "--glossary", terms, "--json").out.splitlines()]
    assert rows[0]["terms"] == [{"term": "b", "text": "b", "honoured": True}]
    assert "B" not in command(*line, "--forbid", "B").out
    samples = command(*line, "--strategy", "sample", "--samples", 2, "--seed", 1).out.splitlines()
    assert [row.split(" ||| ")[0] for row in samples] == ["0", "0", "1", "1", "2", "2"]
    checked = [json.loads(row) for row in command(*line, "--check", "--json").out.splitlines()]
    assert all("flags" in row for row in checked)
    alone = command(*line, "--check")
    assert (alone.code, alone.out) == (0, command(*line).out)
    assert alone.err == "--check: what it finds is told in JSON only: add --json\n"
    assert command(*line, "--retry").err == ""
    assert command(*line, "--strategy", "mbr", "--beam", 4).code == 0
    assert "leave out" in command(*line, "--live", "--json").mistake()
    assert "no terms in it" in command(*line, "--glossary", write_lines(tmp_path / "empty.tsv", ["# none"])).mistake()
    assert "unknown strategy 'bem'; did you mean 'beam'?" in command(*line, "--strategy", "bem").mistake()
