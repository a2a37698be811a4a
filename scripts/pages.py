#!/usr/bin/env python3
"""The pages of docs/measurements: makes their tables anew from the JSON beside each; --check changes nothing and fails where a
table is stale, or where a document quotes another figure than was measured (docs/measurements/quotes.tsv)."""

import argparse
import re
import sys

from library import pages
from library.servers import TREE

FOLDER = TREE / "docs/measurements"
QUOTES = FOLDER / "quotes.tsv"
NUMBER = re.compile(r"\d+(?:,\d{3})+|\d+(?:\.\d+)?")


def numbers(text: str) -> list[str]:
    return [found.replace(",", "") for found in NUMBER.findall(text)]


def is_quoted(figure: str, text: str) -> bool:
    """Whether a number of the text is this figure, perhaps with fewer digits."""
    decimals = lambda number: len(number.partition(".")[2])
    return any(decimals(number) <= decimals(figure) and f"{float(figure):.{decimals(number)}f}" == number for number in numbers(text))


def figure(source: str) -> str:
    """The cell that `PAGE#TABLE#ROW#COLUMN` names: ROW is how the row begins, COLUMN a title or a number from 0. With `@1` behind it,
    the cell's first number alone."""
    page, name, row, column = source.split("#")
    column, _, first = column.partition("@")
    found = dict(piece for piece in pages.split((FOLDER / page).read_text()) if piece[0])
    table = pages.parse(found[name])
    chosen = [cells for cells in table["rows"] if " ".join(cells).startswith(row)]
    if len(chosen) != 1:
        raise ValueError(f"{source}: {len(chosen)} rows begin so")
    at = int(column) if column.isdigit() else table["columns"].index(column)
    return numbers(chosen[0][at])[0] if first else chosen[0][at]


def misquoted() -> list[str]:
    wrong = []
    for number, line in enumerate(QUOTES.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        file, text, sources = line.split("\t")
        flat = " ".join((TREE / file).read_text().split())
        if text not in flat:
            wrong.append(f"quotes.tsv:{number}: {file} no longer says: {text}")
            continue
        for source in sources.split(" ; "):
            try:
                cell = figure(source)
            except (KeyError, ValueError, OSError) as why:
                wrong.append(f"quotes.tsv:{number}: {source}: {why}")
                continue
            wrong += [f"quotes.tsv:{number}: {file} says '{text}', measured is {cell} ({source})"
                      for value in numbers(cell) if not is_quoted(value, text)]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail where something is stale")
    options = parser.parse_args()
    wrong = []
    for data in sorted(FOLDER.glob("*.json")):
        page = data.with_suffix(".md")
        try:
            fresh = pages.refreshed(page)
        except (OSError, ValueError) as why:
            wrong.append(str(why))
            continue
        if fresh != page.read_text():
            if options.check:
                wrong.append(f"{page.relative_to(TREE)}: a table is not what {data.name} says; `scripts/pages.py` makes it anew")
            else:
                page.write_text(fresh)
    for page in sorted(FOLDER.glob("*.md")):
        if not pages.data_file(page).exists() and any(name for name, _ in pages.split(page.read_text())):
            wrong.append(f"{page.relative_to(TREE)}: its tables have no data beside them")
    wrong += misquoted()
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
