"""How the command line reads tables: formats, kinds of columns, blocks; and how it writes files."""

import argparse
import bz2
import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest

from rbr._files import whole_file
from rbr.cli import libraries, tables
from rbr.cli.blocks import Texts, Wanted
from rbr.cli.columns import as_table
from rbr.cli.console import Refusal
from rbr.cli.csv_format import guess_format
from rbr.cli.outputs import table_writer
from rbr.cli.tables import chunks_of_rows, open_source

TEXT = 'id,size,flag,town,day,code\n1,1.5,true,"Ulm, old",2024-01-31,007\n2,NA,false,Bonn,2024-02-01,008\n3,-2,,?,,9\n'


@pytest.fixture(params=["pyarrow", "pandas"])
def library(request, monkeypatch):
    """Every test runs by each of the two libraries."""
    monkeypatch.setattr(libraries, "library", lambda: request.param)
    return request.param


def source_of(path, **options):
    given = {"sep": None, "decimal": None, "encoding": None, "missing": []} | options
    return open_source(str(path), argparse.Namespace(**given))


def write(folder, text, name="table.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def blocks_of(source, wanted):
    return [source.block(chunk, wanted) for chunk in source.chunks(wanted)]


def values(block, name):
    return [block.value(name, row) for row in range(len(block))]


def texts(block, name):
    return [block.text(name, row) for row in range(len(block))]


def test_columns_get_their_kinds(tmp_path, library):
    columns = {own.name: own for own in source_of(write(tmp_path, TEXT)).whole()}
    kinds = {name: own.kind for name, own in columns.items()}
    assert kinds == {
        "id": "integer",
        "size": "number",
        "flag": "boolean",
        "town": "category",
        "day": "date",
        "code": "category",  # 007 is no number
    }
    np.testing.assert_array_equal(columns["size"].values, [1.5, np.nan, -2.0])
    np.testing.assert_array_equal(columns["flag"].values, [1.0, 0.0, np.nan])
    assert columns["town"].levels == ("Bonn", "Ulm, old") and columns["town"].values.tolist() == [1, 0, -1]
    assert columns["code"].levels == ("007", "008", "9")
    assert [own.n_missing for own in columns.values()] == [0, 1, 1, 1, 1, 0]


def test_text_of_which_most_rows_have_their_own_names_rows(tmp_path, library):
    rows = "".join(f"{k},name {k},group {k % 3}\n" for k in range(120))
    kinds = {own.name: own.kind for own in source_of(write(tmp_path, "k,name,group\n" + rows)).whole()}
    assert kinds == {"k": "integer", "name": "names", "group": "category"}


def test_named_columns_are_read_as_categories_as_they_are_written(tmp_path, library):
    columns = {own.name: own for own in source_of(write(tmp_path, TEXT)).whole(as_text=["id"])}
    assert columns["id"].as_category().levels == ("1", "2", "3")


@pytest.mark.parametrize("day", ["2024-01-31", "31.01.2024", "1/31/24", "2024-01-31 10:00", "31 Jan 2024", "31-Jan-24"])
def test_dates_are_recognised(tmp_path, library, day):
    (column,) = [own for own in source_of(write(tmp_path, f"a,day\n1,{day}\n2,{day}\n")).whole() if own.name == "day"]
    assert column.kind == "date"


def test_separator_and_decimal_comma_are_guessed(tmp_path, library):
    source = source_of(write(tmp_path, "name;größe;preis\nann;1,5;3\nbob;2,25;4\n"))
    assert (source.form.separator, source.form.decimal) == (";", ",")
    assert source.form.says() == "separated by semicolons, decimal commas"
    np.testing.assert_array_equal(source.whole()[1].values, [1.5, 2.25])
    (block,) = blocks_of(source, Wanted(("größe",), ("name",)))
    assert values(block, "größe") == [1.5, 2.25]


@pytest.mark.parametrize(
    ("text", "separator"),
    [("a,b\n1,2\n", ","), ("a\tb\n1,5\t2\n", "\t"), ("a|b\n1|2\n", "|"), ("a\n1\n", ","), ('"a;x",b\n"1;2",3\n', ",")],
)
def test_separators(text, separator):
    assert guess_format(text.encode(), "x").separator == separator


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
def test_encodings_are_guessed(tmp_path, library, encoding):
    source = source_of(write(tmp_path, "größe,stadt\n1,Köln\n2,Ulm\n", encoding=encoding))
    assert source.names == ("größe", "stadt")
    assert source.whole()[1].levels == ("Köln", "Ulm")
    (block,) = blocks_of(source, Wanted(("größe",), ("stadt",)))
    assert values(block, "stadt") == ["Köln", "Ulm"]


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip", "zst"])
def test_compressed_files(tmp_path, kind):
    data, path = TEXT.encode(), tmp_path / f"table.csv.{kind}"
    if kind == "zst":
        pyarrow = pytest.importorskip("pyarrow")
        path.write_bytes(pyarrow.Codec("zstd").compress(data, asbytes=True))
        with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(data)
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("table.csv", data)
    else:
        path.write_bytes({"gz": gzip, "bz2": bz2, "xz": lzma}[kind].compress(data))
    source = source_of(path)
    assert [own.kind for own in source.whole()][:3] == ["integer", "number", "boolean"]
    (block,) = blocks_of(source, Wanted(("id",), ()))
    assert values(block, "id") == [1.0, 2.0, 3.0]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "table.parquet"
    table = pyarrow.table({"n": [1, None, 3], "flag": [True, False, None], "town": ["a", None, "b"]})
    parquet.write_table(table, path)
    source = source_of(path)
    assert [own.kind for own in source.whole()] == ["integer", "boolean", "category"]
    (block,) = blocks_of(source, Wanted(("n", "flag"), ("town",), ("n",)))
    assert values(block, "n") == [1.0, None, 3.0] and values(block, "flag") == [1.0, 0.0, None]
    assert values(block, "town") == ["a", None, "b"] and texts(block, "n") == [1, None, 3]


def test_blocks_hold_what_is_wanted(tmp_path):
    (block,) = blocks_of(source_of(write(tmp_path, TEXT)), Wanted(("size", "flag", "id"), ("town",), ("id", "town")))
    assert values(block, "size") == [1.5, None, -2.0]
    assert values(block, "flag") == [1.0, 0.0, None]
    assert values(block, "town") == ["Ulm, old", "Bonn", None]
    # As they are written, also where the model needs numbers or categories.
    assert texts(block, "id") == ["1", "2", "3"]
    assert texts(block, "town") == ["Ulm, old", "Bonn", "?"]
    assert values(block, "id") == [1.0, 2.0, 3.0]


def test_a_file_is_cut_into_blocks_at_the_ends_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BYTES_PER_CHUNK", 64)
    rows = [f'{k},"line {k}\nof ""two""",x' for k in range(50)]
    source = source_of(write(tmp_path, '"the\nnumber",text,last\n' + "\n".join(rows) + "\n\n\n"))
    blocks = blocks_of(source, Wanted(("the\nnumber",), ("text",)))
    assert len(blocks) > 5
    assert [v for block in blocks for v in values(block, "the\nnumber")] == list(range(50))
    assert values(blocks[0], "text")[0] == 'line 0\nof "two"'


@pytest.mark.parametrize("n_bytes", range(1, 20))
def test_chunks_are_the_file(n_bytes):
    data = b'1,"a\nb"\n2,c\r\n\n3,"d"'
    chunks = [bytes(chunk) for chunk in chunks_of_rows(io.BufferedReader(io.BytesIO(data)), n_bytes)]
    assert b"".join(chunks).replace(b"\n\n", b"\n") == data.replace(b"\n\n", b"\n")
    assert all(chunk.endswith((b"\n", b"\r")) and chunk.count(b'"') % 2 == 0 for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; a line of column names and rows"),
        ("a,b\n", "has no rows"),
        ("a,b\n1,2\n3\n", "cannot be read: CSV parse error: Expected 2 columns, got 1: 3"),
    ],
)
def test_broken_tables_are_refused_in_words(tmp_path, text, message):
    with pytest.raises(Refusal, match=message):
        source_of(write(tmp_path, text)).whole()


def test_a_text_among_numbers_is_named_with_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BYTES_PER_CHUNK", 2**20)
    source = source_of(write(tmp_path, "a,b\n1,2\n3,x\n"))
    with pytest.raises(Refusal, match="column 'b' of table.csv holds 'x' in row 2; numbers are expected there"):
        blocks_of(source, Wanted(("a", "b"), ()))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1,2\n3\n", "table.csv has 1 value in row 2, and 2 names in its first line"),
        ("1,2\n\n3,4\n5,6,7\n", "table.csv has 3 values in row 3, and 2 names in its first line"),
    ],
)
def test_a_row_with_other_columns_is_named(tmp_path, lines, message):
    source = source_of(write(tmp_path, "a,b\n" + lines))
    with pytest.raises(Refusal, match=message):
        blocks_of(source, Wanted(("a",), ()))


def test_numbers_in_words_and_in_other_forms(tmp_path):
    given = [
        "1e400",
        "TRUE",
        "False",
        "inf",
        "-Infinity",
        "NaN",
        '"2.5"',
        '"3"".5"',
        " 4 ",
        "NA",
        "123456789012345678901",
    ]
    told = source_of(write(tmp_path, "a,b\n" + "".join(f"{text},x\n" for text in [*given[:7], *given[8:]])))
    (block,) = blocks_of(told, Wanted(("a",), ()))
    assert values(block, "a") == [np.inf, 1.0, 0.0, np.inf, -np.inf, None, 2.5, 4.0, None, 123456789012345678901.0]
    for text in (given[7], "1_000", "0x10", "1.2.3"):
        with pytest.raises(Refusal, match="column 'a' of table.csv holds .* in row 2; numbers are expected there"):
            blocks_of(source_of(write(tmp_path, f"b;a\nx;1\ny;{text}\n")), Wanted(("a",), ()))


def test_a_quote_within_a_text_is_a_character(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BYTES_PER_CHUNK", 64)
    lines = "".join(f'{k},5" pipe\n{k},"a ""b"", c"\n{k},"a" b\n' for k in range(30))
    blocks = blocks_of(source_of(write(tmp_path, "n,what\n" + lines)), Wanted(("n",), ("what",), ("what",)))
    assert len(blocks) > 5
    expected = ['5" pipe', 'a "b", c', "a b"] * 30
    assert [v for block in blocks for v in values(block, "what")] == expected
    assert [v for block in blocks for v in texts(block, "what")] == expected


def test_columns_that_are_absent_or_there_twice_are_refused(tmp_path):
    source = source_of(write(tmp_path, "a,b,a\n1,2,3\n"))
    with pytest.raises(Refusal, match="table.csv has no column 'c', which the model uses; its columns are 'a', 'b'"):
        source.require(["b", "c"], "which the model uses")
    with pytest.raises(Refusal, match="more than one column named 'a'"):
        source.require(["a"], "which the model uses")


def test_other_marks_of_missing_values(tmp_path, library):
    source = source_of(write(tmp_path, "a,b\n-999,x\n2,unknown\n3,y\n"), missing=["-999", "unknown"])
    a, b = source.whole()
    assert np.isnan(a.values).tolist() == [True, False, False] and b.levels == ("x", "y")
    (block,) = blocks_of(source, Wanted(("a",), ("b",)))
    assert values(block, "a") == [None, 2.0, 3.0] and values(block, "b") == ["x", None, "y"]


def test_a_table_for_the_estimator(tmp_path, library):
    columns = [own for own in source_of(write(tmp_path, TEXT)).whole() if own.kind != "date"]
    table = as_table(columns)
    from rbr.data.tables import open_table

    opened = open_table(table)
    assert type(opened).__name__ == ("ArrowTable" if library == "pyarrow" else "PandasTable")
    assert [opened.holds_categories(j) for j in range(opened.n_features)] == [False, False, False, True, True]
    levels, codes = opened.levels(3)
    assert (levels, codes.tolist()) == (["Bonn", "Ulm, old"], [1, 0, -1])


# ---------------------------------------------------------------- writing


def test_an_interrupted_file_leaves_nothing(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and [own.name for own in tmp_path.iterdir()] == ["out.txt"]


def test_csv_is_quoted_where_it_must_be(tmp_path):
    path = tmp_path / "out.csv"
    with table_writer(str(path), ["name, of", "p"]) as writer:
        writer.write(writer.encode({"name, of": Texts.of(["x"]), "p": np.array([0.1])}))
        writer.write(writer.encode({"name, of": Texts.of(['a "b", c']), "p": np.array([1 / 3])}))
    assert path.read_text() == '"name, of",p\nx,0.1\n"a ""b"", c",0.3333333333333333\n'


def test_a_table_that_fails_half_way_is_not_written(tmp_path):
    path = tmp_path / "out.csv.gz"
    with pytest.raises(ValueError, match="half way"), table_writer(str(path), ["p"]) as writer:
        writer.write(writer.encode({"p": np.array([0.1])}))
        raise ValueError("half way")
    assert list(tmp_path.iterdir()) == []
