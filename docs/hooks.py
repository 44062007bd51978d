"""What MkDocs does not do by itself: see `mkdocs.yml`.

Pages from outside `docs/` (the README is the first page), links between them that also work where
the repository is read, API pages, mathematics without scripts, search without a server, `llms.txt`.
"""

import html
import json
import posixpath
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import reference

# Where a file of the repository stands on the site, if not at its own path (or below docs/).
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "benchmarks/README.md": "benchmarks.md",
}
SCRIPTS = ("examples/**/*.py", "examples/**/*.ipynb")
LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)((?:#[^)\s]*)?\))")
# What the converter does not know by these names.
SPELLINGS = {
    r"\\arg\b": r"\\operatorname{arg}",
    r"\\[Bb]ig(?=\\)": "",
    r"\\begin{aligned}": r"\\begin{array}{ll}",
    r"\\end{aligned}": r"\\end{array}",
}
# Names of functions, which MathML sets as letters without space on either side.
FUNCTIONS = re.compile(
    r"<mi>(ln|log|exp|cos|sin|tanh|max|min|argmin|argmax|sup|inf|det|tr|diag|sign)</mi>"
    r"(?=(</\w+>)?(\s*<mo[^>]*>(\(|&#x00028;))?)"
)
# Relations that the converter sets as letters.
RELATIONS = re.compile("<mi>(&#x02AAF;|⪯|&#x02026;|…)</mi>")
LONG_FORMULA = 24
"""An inline formula with more symbols than this scrolls on a phone."""
IMAGE = re.compile(r"<p>\s*((?:<a [^>]*>)?<img [^>]*>(?:</a>)?)\s*</p>")
WIDE_IMAGE = 2.5
"""A figure this many times as wide as high has panels side by side."""
MATHS = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.S)


def on_config(config: Any) -> Any:
    """`folder/*` in the navigation becomes the pages of the folder, its index first."""
    config.nav = [_expanded(entry) for entry in config.nav]
    config.nav = [entry for entry in config.nav if entry]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in docs/: pages of the root, scripts that pages link to, API pages."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    for script in sorted(path for pattern in SCRIPTS for path in ROOT.glob(pattern)):
        name = script.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(script)))
    if _names("gallery") and not (ROOT / "docs" / "gallery" / "index.md").exists():
        files.append(
            File.generated(config, "gallery/index.md", content=text_of("gallery/index.md"))
        )
    files.append(File.generated(config, "api/index.md", content=reference.index()))
    for room in reference.rooms():
        page = File.generated(config, f"api/{room}.md", content=reference.page(room))
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between files of the repository become links between pages of the site."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, page: str) -> str:
    """`markdown` of the site's `page` with links to files as the site names them.

    >>> relinked("[how](../benchmarks/README.md#streams)", "streams.md")
    '[how](benchmarks.md#streams)'
    >>> relinked("[which](docs/methods.md), [ours](#names)", "index.md")
    '[which](methods.md), [ours](#names)'
    """
    here = {target: source for source, target in OUTSIDE.items()}.get(page, f"docs/{page}")

    def moved(link: re.Match[str]) -> str:
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), link[2]))
        there = OUTSIDE.get(there, there.removeprefix("docs/"))
        return link[1] + posixpath.relpath(there, posixpath.dirname(page) or ".") + link[3]

    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Turn LaTeX into MathML, which browsers draw without a script; frame figures."""
    html = MATHS.sub(lambda found: mathml(found[2], found[1] == "div", page.file.src_uri), html)
    return IMAGE.sub(lambda found: framed(found[1], page.file.src_uri), html)


def framed(image: str, page: str) -> str:
    """Put a figure into a frame that scrolls on a phone if it has panels side by side."""
    source = re.search(r'src="([^"]*)"', image)
    wide = source is not None and _is_wide(source[1], page)
    return f'<span class="figure{" wide" if wide else ""}" tabindex="0">{image}</span>'


def _is_wide(source: str, page: str) -> bool:
    path = ROOT / "docs" / posixpath.normpath(posixpath.join(posixpath.dirname(page), source))
    if path.suffix != ".png" or not path.is_file():
        return False
    # Width and height are the first two numbers of a PNG file.
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return bool(width > WIDE_IMAGE * height)


def mathml(latex: str, display: bool, where: str) -> str:
    """One formula; one that cannot be drawn stops the build."""
    text = html.unescape(latex)
    for ours, theirs in SPELLINGS.items():
        text = re.sub(ours, theirs, text)
    try:
        found = convert(text, display="block" if display else "inline")
    except Exception as error:
        raise PluginError(f"{where}: cannot draw the formula {latex!r}: {error!r}") from error
    # What it does not know it passes on as letters, a backslash or an ampersand among them.
    if re.search(r"[\\&]", html.unescape(re.sub("<[^>]*>", "", found))):
        raise PluginError(f"{where}: a command of the formula {latex!r} is not known")
    found = FUNCTIONS.sub(_operator, RELATIONS.sub(r"<mo>\1</mo>", found))
    if not display and len(re.findall("<m[ino]>|<m[ino] ", found)) > LONG_FORMULA:
        return f'<span class="formula" tabindex="0">{found}</span>'
    return found


def _operator(name: re.Match[str]) -> str:
    """Return the name of a function with space around it, but none before a bracket or index."""
    after = "0em" if name[3] else "0.17em"
    return f'<mo form="infix" lspace="0.17em" rspace="{after}" movablelimits="false">{name[1]}</mo>'


def on_post_build(config: Any) -> None:
    """Search that works from a file, and llms.txt."""
    site = Path(config.site_dir)
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    # A browser starts no worker from file://, except from text that the page already has.
    (site / "search" / "no-iframe-worker.js").write_text(
        f"const text = {json.dumps(worker.read_text())};\n"
        'if (location.protocol === "file:") {\n'
        "  const Native = self.Worker;\n"
        "  self.Worker = class extends Native {\n"
        "    constructor() { super(URL.createObjectURL(new Blob([text]))); }\n"
        "  };\n"
        "}\n"
    )
    (site / "llms.txt").write_text(llms_text(config.nav, config.site_description))


def llms_text(nav: list[Any], description: str) -> str:
    """The site for programs that read: every page of the navigation, with its first sentences."""
    lines = ["# obax", "", f"> {description}", ""]
    for section in nav:
        ((title, below),) = section.items()
        lines += [f"## {title}", ""]
        lines += [
            f"- [{_title(path)}]({path[:-3]}.html): {_opening(path)}" for path in pages(below)
        ]
        lines.append("")
    return "\n".join(lines)


def pages(nav: Any) -> Iterator[str]:
    """Every page that a navigation, or a part of one, names."""
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages(entry)


def text_of(page: str) -> str:
    """The Markdown that a page is made from."""
    if page.startswith("api/"):
        room = page.removeprefix("api/").removesuffix(".md")
        return reference.index() if room == "index" else f"# obax.{room}\n"
    if page == "gallery/index.md" and not (ROOT / "docs" / page).exists():
        return _gallery()
    outside = {target: source for source, target in OUTSIDE.items()}
    return (ROOT / outside.get(page, f"docs/{page}")).read_text()


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        ((title, below),) = entry.items()
        if isinstance(below, str) and below.endswith("/*"):
            folder = below.removesuffix("/*")
            names = reference.rooms() if folder == "api" else _names(folder)
            found = [f"{folder}/{name}.md" for name in ("index", *names)]
            return {title: found} if names else None
        return {title: [_expanded(it) for it in below] if isinstance(below, list) else below}
    return entry


def _gallery() -> str:
    """The first page of the gallery: every picture, with the sentence that it shows."""
    lines = [
        "# Gallery\n",
        "Short scripts with a picture each, less than a minute long.\n",
    ]
    for name in _names("gallery"):
        page = f"gallery/{name}.md"
        lines += [f"## [{_title(page)}]({name}.md)\n", _opening(page) + "\n"]
        if (ROOT / "docs" / "gallery" / f"{name}.png").exists():
            lines += [f"[![{_title(page)}]({name}.png)]({name}.md)\n"]
    return "\n".join(lines)


def _names(folder: str) -> list[str]:
    return sorted({path.stem for path in (ROOT / "docs" / folder).glob("*.md")} - {"index"})


def _title(page: str) -> str:
    return re.search(r"^# (.*)$", text_of(page), re.M)[1].replace("`", "")  # type: ignore[index]


def _opening(page: str) -> str:
    """The first paragraph of prose, in one line."""
    if page.startswith("api/") and not page.endswith("index.md"):
        return f"every public name of `obax.{page[4:-3]}`, with its docstring"
    text = re.sub(r"^# .*$", "", text_of(page), count=1, flags=re.M)
    blocks = re.sub(r"```.*?```", "", text, flags=re.S).split("\n\n")
    prose = [
        block for block in blocks if re.match(r"[\w*`\[\"]", block.strip()) and "\n|" not in block
    ]
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose[0].split()) if prose else "")
    return words if len(words) < 300 else words[:300].rsplit(" ", 1)[0] + " ..."
