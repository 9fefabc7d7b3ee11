"""XML without its dangers: no entity is defined or expanded, nothing outside the file is read, sizes are bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from ...errors import InputError

MAX_ELEMENTS = 200_000
MAX_DEPTH = 200


@dataclass(slots=True)
class Element:
    """One element: its name, its attributes, the elements inside and the text between them."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def walk(self) -> Iterator["Element"]:
        """Yield this element and all inside it, in the order of the file."""
        pending = [self]
        while pending:
            element = pending.pop()
            yield element
            pending.extend(reversed(element.children))

    def named(self, *names: str) -> list["Element"]:
        """Return the direct children of these names."""
        return [child for child in self.children if child.name in names]


def parse_xml(text: str, where: str) -> Element:
    """Return the root element; InputError for XML that is broken, too large, or declares entities."""
    parser = expat.ParserCreate()
    stack: list[Element] = []
    root: list[Element] = []
    written: list[list[str]] = []  # the text inside each element of the stack
    count = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS or len(stack) >= MAX_DEPTH:
            raise InputError(
                f"{where}:{parser.CurrentLineNumber}: more than {MAX_ELEMENTS} elements or {MAX_DEPTH} levels"
            )
        element = Element(name, attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else root).append(element)
        stack.append(element)
        written.append([])

    def end(name: str) -> None:
        element = stack.pop()
        element.text = "".join(written.pop())

    def characters(data: str) -> None:
        if written:
            written[-1].append(data)

    def refuse(*_: object) -> int:
        raise InputError(f"{where}:{parser.CurrentLineNumber}: declares an XML entity, refused")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{where}:{error.lineno}: not well-formed XML: {expat.ErrorString(error.code)}") from None
    except (ValueError, UnicodeError) as error:
        raise InputError(f"{where}: not XML: {error}") from None
    return root[0]


def whole_number(element: Element, key: str, where: str, *, minimum: int = 0) -> int:
    """Return an attribute as a whole number; InputError names the line."""
    text = element.attributes.get(key, "")
    if not text.lstrip("-").isdecimal() or len(text) > 12 or int(text) < minimum:
        raise InputError(f"{where}:{element.line}: {element.name} {key}={text[:30]!r}, expected a whole number")
    return int(text)
