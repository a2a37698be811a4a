#!/usr/bin/env python3
"""Prints what third parties have in the binary: each crate with its version and licence, and the notices that come with it."""

import json
import subprocess
from pathlib import Path

NOTICES = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def linked() -> list[dict]:
    """The third-party packages that are linked into penstock, without those of build scripts and tests."""
    host = [line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host:")][0]
    graph = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host))
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    todo = [id for id, package in packages.items() if package["name"] == "penstock" and not package["source"]]
    found = set(todo)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            is_macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if is_linked and not is_macro and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                todo.append(dependency["pkg"])
    others = [packages[id] for id in found if packages[id]["source"]]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    texts: dict[str, list[str]] = {}
    print("The binary of penstock contains these crates:\n")
    for package in linked():
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see its notice'}")
        folder = Path(package["manifest_path"]).parent
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name.lower().startswith(NOTICES) and file.suffix not in (".rs", ".go", ".py"):
                text = file.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(f"{name}: {file.relative_to(folder)}")
    for text, files in sorted(texts.items(), key=lambda item: item[1]):
        print("\n" + "=" * 80)
        print("\n".join(files))
        print("=" * 80 + "\n")
        print(text)


main()
