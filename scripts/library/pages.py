"""Pages under docs/measurements: text written by hand, and tables made from the JSON file beside the page.

A table stands behind a line `<!-- table: NAME -->`. The JSON file has, under "tables" and that name, its columns and its
rows, each cell as it is shown; a column named in "bold" is set in bold. Whatever else a script has measured, round by round,
stands under "rounds".
"""

import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

MARK = re.compile(r"^<!-- table: ([\w-]+) -->$")
RULE = re.compile(r"^\|( ?-+:? ?\|)+$")
BOLD = re.compile(r"^\*\*(.*)\*\*$")

Table = dict[str, Any]


def cells(line: str) -> list[str]:
    """The cells of a table's row."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def parse(lines: list[str]) -> Table:
    """A table as the JSON file has it, from its Markdown."""
    columns, rows = cells(lines[0]), [cells(line) for line in lines[2:]]
    bold = [title for at, title in enumerate(columns)
            if title and any(BOLD.match(row[at]) for row in rows) and all(BOLD.match(row[at]) or not row[at] for row in rows)]
    for row in rows:
        for at, title in enumerate(columns):
            if title in bold:
                row[at] = row[at].removeprefix("**").removesuffix("**")
    return {"columns": columns, **({"bold": bold} if bold else {}), "rows": rows}


def render(table: Table) -> list[str]:
    """A table's Markdown, from what the JSON file has of it."""
    columns, bold = table["columns"], table.get("bold", [])
    shown = lambda title, cell: f"**{cell}**" if title in bold and cell else cell
    line = lambda row: "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    body = [line([shown(title, cell) for title, cell in zip(columns, row, strict=True)]) for row in table["rows"]]
    # An empty cell takes one blank, as the study pages have it.
    return [re.sub(r"\|  (?=\|)", "| ", text) for text in (line(columns), "|" + "---|" * len(columns), *body)]


def split(text: str) -> Iterable[tuple[str | None, list[str]]]:
    """The page's pieces: lines of text (None), and tables by name (the first line is their mark, where they have one)."""
    lines, at, unnamed = text.split("\n"), 0, 0
    piece: list[str] = []
    while at < len(lines):
        mark = MARK.match(lines[at])
        begins = at + 1 if mark else at
        if begins + 1 < len(lines) and lines[begins].startswith("|") and RULE.match(lines[begins + 1]):
            end = begins
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            yield None, piece
            piece = []
            unnamed += 0 if mark else 1
            yield (mark.group(1) if mark else f"table-{unnamed}"), lines[begins:end]
            at = end
            continue
        if mark:
            # A mark whose table is not there yet.
            yield None, piece
            piece = []
            yield mark.group(1), []
        else:
            piece.append(lines[at])
        at += 1
    yield None, piece


def refreshed(page: pathlib.Path) -> str:
    """The page with its tables made anew from the data beside it."""
    tables = data_of(page)["tables"]
    out: list[str] = []
    for name, lines in split(page.read_text()):
        if name is None:
            out += lines
        elif name in tables:
            out += [f"<!-- table: {name} -->", *render(tables[name])]
        else:
            raise ValueError(f"{page.name}: the table {name} has no data in {data_file(page).name}")
    return "\n".join(out)


def data_file(page: pathlib.Path) -> pathlib.Path:
    return page.with_suffix(".json")


def data_of(page: pathlib.Path) -> dict[str, Any]:
    file = data_file(page)
    return json.loads(file.read_text()) if file.exists() else {"tables": {}}


def write(page: pathlib.Path, text: str, names: Iterable[str] = (), rounds: Mapping[str, Any] | None = None) -> None:
    """Writes the page and its data. The tables of `text` get these names in order, where they have none of their own."""
    given, tables, out = iter(names), {}, []
    for name, lines in split(text):
        if name is None:
            out += lines
            continue
        name = next(given, name) if name.startswith("table-") else name
        tables[name] = parse(lines)
        out.append(f"<!-- table: {name} -->")
        out += render(tables[name])
    content: dict[str, Any] = {"tables": tables}
    if rounds is not None:
        content["rounds"] = rounds
    data_file(page).write_text(dump(content))
    page.write_text("\n".join(out))


def replace(page: pathlib.Path, name: str, lines: list[str]) -> None:
    """Puts a table, newly measured, in the place of the one of that name; what stands around it is for whoever measured to mend."""
    content = data_of(page)
    content["tables"][name] = parse(lines)
    data_file(page).write_text(dump(content))
    page.write_text(refreshed(page))


def dump(content: Mapping[str, Any]) -> str:
    """JSON with a line for each row, so that a change of one figure is a change of one line."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    leaf = re.compile(r"\[\s*((?:\"(?:[^\"\\]|\\.)*\"|-?[\d.e+-]+|null|true|false)(?:,\s*(?:\"(?:[^\"\\]|\\.)*\"|-?[\d.e+-]+|null|true|false))*)\s*\]")
    inline = lambda found: "[" + re.sub(r",\s*\n\s*", ", ", found.group(1)) + "]"
    return leaf.sub(inline, text) + "\n"
