"""Builds the documentation site from the pages of the repository: ``make site``.

    python docs/site.py FOLDER

The pages are copied into ``FOLDER/pages`` with the repository's own folders, so that their links hold there too;
zensical makes ``FOLDER/html`` of them. Raises SystemExit with the broken links: to a page, a heading or a file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import diagram

ROOT: Final = Path(__file__).resolve().parents[1]
#: The sections of the site and their pages. A test finds pages that no section names.
SECTIONS: Final[dict[str, list[str]]] = {
    "Learn": ["docs/install.md", "docs/tutorial.md", "docs/pytorch.md", "docs/cookbook.md", "examples/README.md"],
    "Guides": ["docs/language.md", "docs/data.md", "docs/finetune.md", "docs/runs.md", "docs/sweep.md", "docs/gpu.md",
               "docs/tuning.md", "docs/scale.md"],
    "Reference": [
        "docs/ops.md", "docs/own_ops.md", "docs/config.md", "docs/commands.md", "docs/python.md", "docs/errors.md",
    ],
    "Internals": [
        "docs/compiler.md", "docs/passes.md", "docs/artifact.md", "docs/robust.md", "docs/fault_tests.md",
        "CONTRIBUTING.md", "CHANGELOG.md",
    ],
    "Benchmarks": ["benchmarks/README.md", *(
        f"benchmarks/results/{name}.md"
        for name in ("zoo", "ops", "loops", "ranks", "cpu", "tuning", "start", "memory", "agreement", "history")
    )],
}  # fmt: skip
_CONFIG: Final = ROOT / "docs/zensical.toml"
_COPIED: Final = (".md", ".svg", ".png")
_HTML: Final = "html"
_ITEM: Final = re.compile(r"(?:[-*]|[0-9]+\.) ")


def pages() -> list[Path]:
    """The repository's pages and their pictures, relative to its root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    found = [Path(name) for name in listed if name.endswith(_COPIED)]
    return [
        path for path in found if path.parts[0] not in ("tests", "dslc", "compiler", "dsl", "runtime", "containers")
    ]


def stage(folder: Path) -> None:
    """Write the pages and the configuration of zensical into a folder."""
    for path in pages():
        target = folder / "pages" / ("index.md" if path == Path("README.md") else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / path).read_bytes()
        target.write_bytes(text if path.suffix != ".md" else _staged(path, text.decode()).encode())
    lines = ["nav = [", '  { "dslc" = "index.md" },']
    for section, names in SECTIONS.items():
        listed = ", ".join(f'"{name}"' for name in names if (ROOT / name).exists())
        lines.append(f'  {{ "{section}" = [{listed}] }},')
    (folder / "pages/assets").mkdir()
    shutil.copyfile(ROOT / "docs/site.css", folder / "pages/assets/site.css")
    (folder / "zensical.toml").write_text(_CONFIG.read_text().replace("# nav\n", "\n".join([*lines, "]", ""])))


def _staged(path: Path, text: str) -> str:
    """A page as the site has it: links to the README lead to the index, links to files that are no pages lose their
    target, lists follow an empty line, diagrams are drawn, models have the language nn, and blocks keep only their
    language and title, because zensical reads no block with other words."""
    text = _with_lists(text)
    text = re.sub(r"^```mermaid\n(.*?)^```$", _drawn, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```\n(?=nn 1\n)", "```nn\n", text, flags=re.MULTILINE)
    text = re.sub(r'^(```\w+)(?:.*?( title="[^"]*"))?.*$', r"\1\2", text, flags=re.MULTILINE)

    def link(found: re.Match[str]) -> str:
        target, anchor = found[2], found[3] or ""
        if "://" in target or target.startswith("#"):
            return found[0]
        where = (ROOT / path.parent / target).resolve()
        if where == ROOT / "README.md":
            up = "../" * len(path.parent.parts)
            return f"[{found[1]}]({up}index.md{anchor})"
        if where.suffix in _COPIED or where.with_suffix(".md").exists():
            return found[0]
        return f"{found[1]}"

    return re.sub(r"\[([^\]\[]*)\]\(([^)#\s]+)(#[^)\s]*)?\)", link, text)


def _drawn(block: re.Match[str]) -> str:
    return f'<div class="diagram">{diagram.svg(block[1])}</div>'


def _with_lists(text: str) -> str:
    """The text with an empty line before each list: zensical reads a list right after a paragraph as a part of it."""
    lines: list[str] = []
    in_block = in_list = False
    for line in text.split("\n"):
        in_block ^= line.lstrip().startswith("```")
        begins = not in_block and _ITEM.match(line) is not None
        if begins and not in_list and lines and lines[-1].strip():
            lines.append("")
        in_list = begins or (in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines)


def build(folder: Path) -> Path:
    """Build the site in an empty folder; returns the folder of its HTML. CalledProcessError if zensical fails."""
    stage(folder)
    command = [sys.executable, str(ROOT / "docs/nn_lexer.py"), "build", "--config-file", "zensical.toml", "--strict"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / _HTML


class _Page(HTMLParser):
    """The links and the anchors of a page, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links += [given[name] for name in ("href", "src") if given.get(name)]
        if given.get("src") or (tag == "link" and given.get("rel") not in ("canonical", "prev", "next")):
            self.loaded.append(given.get("src") or given.get("href") or "")


def broken_links(html: Path) -> Iterator[str]:
    """``PAGE: LINK`` for each link inside the site that leads nowhere."""
    parsed: dict[Path, _Page] = {}
    for path in sorted(html.rglob("*.html")):
        parsed[path] = _Page()
        parsed[path].feed(path.read_text(encoding="utf-8"))
    for path, page in parsed.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].anchors
            ):
                yield f"{path.relative_to(html)}: {link}"


def broken_blocks(html: Path) -> Iterator[str]:
    """The pages that show the fence of a block, because zensical did not read it as one."""
    for path in sorted(html.rglob("*.html")):
        if "```" in path.read_text():
            yield str(path.relative_to(html))


def other_servers(html: Path) -> Iterator[str]:
    """``PAGE: LINK`` for each script, style, picture or frame that a page would load from another server."""
    for path in sorted(html.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        for link in page.loaded:
            if urlsplit(link).netloc:
                yield f"{path.relative_to(html)}: {link}"


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    html = build(folder)
    broken = list(broken_links(html))
    if broken:
        raise SystemExit("\n".join(["these links lead nowhere:", *broken]))
    if loaded := list(other_servers(html)):
        raise SystemExit("\n".join(["these pages load from other servers:", *loaded]))
    if shown := list(broken_blocks(html)):
        raise SystemExit("\n".join(["these pages show the fences of a block:", *shown]))
    print(f"the site is in {html}/index.html; its search needs a server: python -m http.server -d {html}")


if __name__ == "__main__":
    main()
