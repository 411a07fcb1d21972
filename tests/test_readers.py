"""Files of pairs: every format gives back the same pairs, and every mistake is told with file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from sightline.data import read_pairs
from sightline.errors import SightlineError
from sightline.readers import Pair, TextFiles

PAIRS = [Pair("one, two", "eins"), Pair("two ", ""), Pair('drei\u2028 "vier"', "größer & <kleiner>"), Pair("", "x")]
LANGUAGES = ("en", "de")
Write = Callable[[str, str], Path]


def packed(name: str, data: bytes) -> bytes:
    """Data as a file of this name holds it."""
    if name.endswith(".gz"):
        return gzip.compress(data)
    return zstandard.compress(data) if name.endswith(".zst") else data


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(packed(name, text.encode()))
        return path

    return write_file


def as_tsv(pairs: Sequence[Pair]) -> str:
    return "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)


def as_csv(pairs: Sequence[Pair], header: Sequence[str] = ("id", "target", "source")) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream)
    if header:
        writer.writerow(header)
    for number, pair in enumerate(pairs):
        values = {"id": str(number), **pair._asdict()}
        writer.writerow([values[name] for name in header or Pair._fields])
    return stream.getvalue()


def as_json(pairs: Sequence[Pair]) -> str:
    return "".join(json.dumps({**pair._asdict(), "note": 1}) + "\n" for pair in pairs)


def as_tmx(pairs: Sequence[Pair]) -> str:
    units = "".join(
        f'<tu><prop type="x">no text</prop>\n<tuv xml:lang="fr"><seg>non</seg></tuv>\n'
        f'<tuv xml:lang="DE-at"><seg>{escape(pair.target)}</seg></tuv>'
        f'<tuv xml:lang="en-GB"><seg>{escape(pair.source)}</seg></tuv></tu>\n'
        for pair in pairs
    )
    return (
        f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><body>\n{units}</body></tmx>\n'
    )


def write_parquet(path: Path, pairs: Sequence[Pair], rows: int = 3) -> Path:
    table = pyarrow.table(
        {"n": range(len(pairs)), **{side: [getattr(p, side) for p in pairs] for side in Pair._fields}}
    )
    parquet.write_table(table, path, row_group_size=rows, write_page_checksum=True)
    return path


WRITERS = {"tsv": as_tsv, "csv": as_csv, "jsonl": as_json, "tmx": as_tmx}


class TestFormats:
    @pytest.mark.parametrize("zipped", ["", ".gz", ".zst"])
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_parallel(self, write: Write, zipped: str, end: str) -> None:
        source = write(f"a.en{zipped}", end.join(pair.source for pair in PAIRS[:3]))
        target = write(f"a.de{zipped}", end.join(pair.target for pair in PAIRS[:3]) + end)
        assert read_pairs(source, target) == PAIRS[:3]

    @pytest.mark.parametrize("zipped", ["", ".gz", ".zst"])
    @pytest.mark.parametrize("form", WRITERS)
    def test_one_file(self, write: Write, form: str, zipped: str) -> None:
        assert read_pairs(pairs=write(f"a.{form}{zipped}", WRITERS[form](PAIRS)), languages=LANGUAGES) == PAIRS

    @pytest.mark.parametrize("name", ["a.json", "a.JSONL", "a.Json.GZ"])
    def test_other_names(self, write: Write, name: str) -> None:
        path = write(name, as_json(PAIRS))
        path.write_bytes(packed(name.lower(), as_json(PAIRS).encode()))
        assert read_pairs(pairs=path) == PAIRS

    def test_parquet(self, tmp_path: Path) -> None:
        files = TextFiles.given(pairs=write_parquet(tmp_path / "a.parquet", PAIRS))
        assert list(files.read()) == list(enumerate(PAIRS, start=1))
        assert files.where(2) == f"{tmp_path / 'a.parquet'}, row 2"

    def test_comma_separated_without_a_header(self, write: Write) -> None:
        assert read_pairs(pairs=write("a.csv", as_csv(PAIRS, ()))) == PAIRS
        assert read_pairs(pairs=write("b.csv", "\ufeffsource,target\na,b\n")) == [Pair("a", "b")]

    def test_line_numbers_of_sentences_over_several_lines(self, write: Write) -> None:
        path = write("a.csv", 'source,target\n"a\nb\r\nc",d\ne,f\n')
        assert list(TextFiles.given(pairs=path).read()) == [(2, Pair("a b c", "d")), (5, Pair("e", "f"))]
        path = write("a.tmx", as_tmx([Pair("a\nb", "c"), Pair("d", "e")]))
        lines = list(TextFiles.given(pairs=path, languages=LANGUAGES).read())
        assert lines == [(4, Pair("a b", "c")), (8, Pair("d", "e"))]

    @settings(deadline=None, derandomize=True, max_examples=60)
    @given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs", "Cc"]))] * 2), min_size=1, max_size=9))
    def test_any_text(self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
        pairs, folder = [Pair(*row) for row in rows], tmp_path_factory.mktemp("any")
        for form, convert in WRITERS.items():
            path = folder / f"a.{form}.zst"
            path.write_bytes(packed(path.name, convert(pairs).replace("\ufffe", "").replace("\uffff", "").encode()))
            expected = [Pair(*(side.replace("\ufffe", "").replace("\uffff", "") for side in pair)) for pair in pairs]
            assert read_pairs(pairs=path, languages=LANGUAGES) == expected, form
        assert read_pairs(pairs=write_parquet(folder / "a.parquet", pairs)) == pairs

    def test_zstd_of_several_frames(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tsv.zst"
        path.write_bytes(zstandard.compress(b"a\tb\nc") + zstandard.compress(b"\td\n"))
        assert read_pairs(pairs=path) == [Pair("a", "b"), Pair("c", "d")]

    def test_the_bytes_read_are_told(self, write: Write, tmp_path: Path) -> None:
        for path in (write("a.tsv.gz", as_tsv(PAIRS * 99)), write_parquet(tmp_path / "a.parquet", PAIRS * 99)):
            seen: list[int] = []
            list(TextFiles.given(pairs=path).read(seen.append))
            assert sum(seen) == pytest.approx(path.stat().st_size, abs=1)


class TestMemories:
    def test_languages_and_codes(self, write: Write) -> None:
        text = (
            '<tmx version="1.1"><header><note>n</note></header><body>'
            '<tu><tuv lang="en"><seg>a <bpt i="1">&lt;b&gt;<sub>s</sub></bpt>b<ept i="1"/> <hi>c</hi></seg></tuv>'
            '<tuv lang="pt_BR"><seg>x</seg></tuv><tuv lang="pt-PT"><seg>y</seg></tuv></tu>'
            '<tu><tuv lang="en"><seg>alone</seg></tuv></tu>'
            "</body></tmx>"
        )
        path = write("a.tmx", text)
        assert read_pairs(pairs=path, languages=("en", "pt")) == [Pair("a b c", "x")]
        assert read_pairs(pairs=path, languages=("pt-pt", "EN")) == [Pair("y", "a b c")]
        with pytest.raises(SightlineError, match=r"no unit has both 'en' and 'p'; its languages: en, pt-br, pt-pt"):
            read_pairs(pairs=path, languages=("en", "p"))
        with pytest.raises(SightlineError, match=r"set data\.source_language and data\.target_language"):
            read_pairs(pairs=path, languages=("en", None))

    def test_sixteen_bits(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tmx"
        path.write_bytes(as_tmx(PAIRS).replace('"1.0"?', '"1.0" encoding="UTF-16"?').encode("utf-16"))
        assert read_pairs(pairs=path, languages=LANGUAGES) == PAIRS

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("<tmx><body>\n<tu>\n</body></tmx>", "line 3: broken XML: mismatched tag"),
            ("<tmx><body>\n<tu>", "line 2: broken XML: no element found"),
            ("", "line 1: broken XML: no element found"),
            ("<html/>", "not a TMX file: it begins with <html>"),
            ('<!DOCTYPE tmx [\n<!ENTITY a "aaaa">\n<!ENTITY b "&a;&a;">]><tmx/>', "line 2: entity 'a'"),
            ('<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]><tmx/>', "line 1: entity 'a'"),
            ('<!DOCTYPE tmx SYSTEM "x.dtd">\n<tmx>&nbsp;</tmx>', "line 2: entity 'nbsp'"),
        ],
    )
    def test_broken(self, write: Write, text: str, told: str) -> None:
        with pytest.raises(SightlineError) as caught:
            read_pairs(pairs=write("a.tmx", text), languages=LANGUAGES)
        assert told in str(caught.value)


class TestErrors:
    def test_source_longer(self, write: Write) -> None:
        source, target = write("a.en", "x\n" * 100), write("b.de", "y\n" * 98)
        with pytest.raises(SightlineError) as caught:
            read_pairs(source, target)
        assert str(caught.value) == f"{source} has 100 lines, {target} 98: line 99 of {source} has no partner"

    def test_target_longer(self, write: Write) -> None:
        with pytest.raises(SightlineError, match=r"b\.de has 3 lines, .*a\.en 1: line 2 of .*b\.de has no partner"):
            read_pairs(write("a.en", "x\n"), write("b.de", "y\n" * 3))

    @pytest.mark.parametrize(
        ("line", "found"),
        [("one", "1 column$"), ("a\tb\tc", "3 columns; keep two, as with: cut -f1,2$"), ("", "an empty line$")],
    )
    def test_tab_separated(self, write: Write, line: str, found: str) -> None:
        with pytest.raises(SightlineError, match=rf"a\.tsv, line 2: expected two columns.* found {found}"):
            read_pairs(pairs=write("a.tsv", f"a\tb\n{line}\nc\td\n"))

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("a,b\nc\n", "line 2: expected two columns, source and target, or a first line .*, found 1 column$"),
            ("source,other\na,b,c\n", "line 2: expected two columns.* found 3 columns"),
            ("id,source,target\n1,a,b\n\n", "line 3: expected 3 columns, as in the first line, found an empty line"),
            ('a,b\nc,"d\ne,f\n', "line 2: broken CSV: unexpected end of data; is a quotation mark missing"),
            ('a,b\n"c"d,e\n', "line 2: broken CSV: ',' expected after '\"'"),
            (f'a,b\nc,"{"x" * 200_000}"\n', "line 2: broken CSV: field larger than field limit"),
        ],
    )
    def test_comma_separated(self, write: Write, text: str, told: str) -> None:
        with pytest.raises(SightlineError, match=rf"a\.csv, {told}"):
            read_pairs(pairs=write("a.csv", text))

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "not valid JSON"),
            ("", r"not valid JSON \(an empty line\)"),
            ("[" * 100_000, "not valid JSON"),
            ("[1]", "expected an object"),
            ('{"source": "a"}', "'target' is missing"),
            ('{"source": 3, "target": "b"}', "'source' must be a string"),
            ('{"source": "a", "target": "\\ud800"}', "'target' has half of a surrogate pair"),
        ],
    )
    def test_json(self, write: Write, line: str, message: str) -> None:
        good = '{"source": "a", "target": "b"}'
        with pytest.raises(SightlineError, match=rf"a\.jsonl, line 2: {message}"):
            read_pairs(pairs=write("a.jsonl", f"{good}\n{line}\n"))

    def test_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        for columns, told in [
            ({"source": ["a"], "other": ["b"]}, "expected the columns 'source' and 'target', found: source, other"),
            ({"source": ["a", "c"], "target": ["b", None]}, "a.parquet, row 2: 'target' is missing"),
            ({"source": [1], "target": ["b"]}, "a.parquet, row 1: 'source' must be a string"),
        ]:
            parquet.write_table(pyarrow.table(columns), path)
            with pytest.raises(SightlineError) as caught:
                read_pairs(pairs=path)
            assert told in str(caught.value)
        write_parquet(path, [Pair(f"s{number}" * 40, f"t{number}" * 40) for number in range(20_000)], rows=5_000)
        whole = path.read_bytes()
        middle = len(whole) // 2
        for broken in (whole[:-100], whole[:middle] + b"\0" * 20_000 + whole[middle + 20_000 :], b"", b"text"):
            path.write_bytes(broken)
            with pytest.raises(SightlineError, match=r"a\.parquet.*: broken Parquet data"):
                read_pairs(pairs=path)
        with pytest.raises(SightlineError, match=r"b\.parquet: no such file"):
            read_pairs(pairs=tmp_path / "b.parquet")

    @pytest.mark.parametrize("zipped", [".gz", ".zst"])
    @pytest.mark.parametrize("form", WRITERS)
    def test_cut_short(self, write: Write, form: str, zipped: str) -> None:
        many = [Pair(f"{number * 7919 % 100_003}", f"{number * 104_729 % 99_991}") for number in range(9_000)]
        path = write(f"a.{form}{zipped}", WRITERS[form](many))
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(SightlineError, match=rf"a\.{form}{zipped}(, after line \d+)?: broken (gzip|zstd) data"):
            read_pairs(pairs=path, languages=LANGUAGES)

    def test_packed_without_its_name(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tsv"
        path.write_bytes(zstandard.compress(b"a\tb\n"))
        with pytest.raises(SightlineError, match=r"this is zstd data; give the file a name that ends in \.zst"):
            read_pairs(pairs=path)

    @pytest.mark.parametrize("name", ["a.txt.gz", "a", "a.gz", "a.parquet.gz"])
    def test_unknown_format(self, write: Write, name: str) -> None:
        with pytest.raises(SightlineError, match=r"must end in \.tsv, \.csv, \.jsonl, \.parquet or \.tmx"):
            read_pairs(pairs=write(name, "a\tb\n"))

    @pytest.mark.parametrize("text", ["", "source,target\n"])
    def test_empty(self, write: Write, text: str) -> None:
        with pytest.raises(SightlineError, match=r"a\.csv: the file is empty"):
            read_pairs(pairs=write("a.csv", text))
        with pytest.raises(SightlineError, match=r"a\.en: the file is empty"):
            read_pairs(write("a.en", ""), write("a.de", ""))

    def test_which_files(self, write: Write) -> None:
        path = write("a.tsv", "a\tb\n")
        with pytest.raises(SightlineError, match="not both"):
            read_pairs(path, None, path)
        with pytest.raises(SightlineError, match="is one side only: give a source and a target"):
            read_pairs(path)
        with pytest.raises(SightlineError, match="no text is given"):
            read_pairs()
