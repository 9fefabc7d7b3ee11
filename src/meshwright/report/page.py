"""A page as one self-contained HTML file, and its data as JSON beside it: both are written from the same struct."""

import re
from pathlib import Path

import jinja2
import markupsafe
import msgspec
from plotly.offline import get_plotlyjs

from ..errors import InputError
from ..files import is_device, write_atomic, write_struct, writing
from .document import Figure, Page


def write_page(path: Path, page: Page) -> Path:
    """Write `path` (HTML) and the same name with .json; return the latter. InputError if that cannot be done."""
    if is_device(path):
        raise InputError(f"{path}: is a device or a pipe, expected a file: the data of a page go beside it")
    data_path = path.with_suffix(".json")
    with writing(path):
        write_atomic(path, page_html(page).encode("utf-8", "backslashreplace"))
        write_struct(data_path, page)
    return data_path


def page_html(page: Page) -> str:
    """Return the page as HTML that loads nothing else."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("meshwright.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["script_json"] = _script_json
    environment.filters["whole_keys"] = _whole_keys
    environment.filters["keys_apart"] = _keys_apart
    figures = [block for section in page.sections for block in section.blocks if isinstance(block, Figure)]
    return environment.get_template("page.html").render(
        page=page,
        kind_of=lambda block: type(block).__struct_config__.tag,
        plotly=markupsafe.Markup(get_plotlyjs()) if figures else "",
        markup=markupsafe.Markup,
    )


def _whole_keys(text: str) -> markupsafe.Markup:
    """Return a text whose words KEY=VALUE break at none of their hyphens ("order=tp-cp-pp-dp")."""
    whole = markupsafe.Markup('<span class="whole">{}</span>')
    words = (whole.format(word) if "=" in word and "-" in word else markupsafe.escape(word) for word in text.split(" "))
    return markupsafe.Markup(" ").join(words)


def _keys_apart(text: str) -> markupsafe.Markup:
    """Return a text in which a layout ("tp=8,pp=4") may go on in the next line behind a comma, not within a key."""
    return markupsafe.Markup(",<wbr>").join(re.split(r"(?<=\w),(?=\w+=)", text))


def _script_json(value: object) -> markupsafe.Markup:
    """Return `value` as JSON that no text in it can end early: every "<" is written as an escape."""
    return markupsafe.Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))
