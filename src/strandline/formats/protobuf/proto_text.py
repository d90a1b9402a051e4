"""Parse the text of a .proto file into a descriptor, without a compiler at run time."""

import re
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from strandline.errors import InvalidSchema

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[.]?[A-Za-z_][\w.]*)
    |(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|\d[\w.]*(?:[eE][-+]?\d+)?|inf|nan))
    |(?P<sign>[-{}\[\]()<>=;,:.])""",
    re.VERBOSE | re.DOTALL,
)
_LARGEST, _DEEPEST = 2**20, 32
_LAST_NUMBER: Final = 2**29
SCALARS: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def parse_proto(text: str, name: str = "schema.proto") -> FileDescriptorProto:
    """Parse a .proto file (syntax proto2 or proto3)."""
    if len(text) > _LARGEST:
        raise InvalidSchema(f"a .proto of {len(text)} characters", hint=f"at most {_LARGEST} are read")
    file = FileDescriptorProto(name=name)
    _Parser(text, file).read()
    return file


class _Parser:
    """Parser that reads the tokens of a file once."""

    def __init__(self, text: str, file: FileDescriptorProto) -> None:
        self.words = list(_words(text))
        self.at = 0
        self.file = file

    def read(self) -> None:
        while self.at < len(self.words):
            match self._next():
                case "syntax":
                    self._expect("=")
                    self._syntax(self._text())
                    self._expect(";")
                case "edition":
                    raise InvalidSchema("a .proto file with an edition is not supported", hint="use proto3")
                case "package":
                    self.file.package = self._next()
                    self._expect(";")
                case "import":
                    if self._peek() in ("public", "weak"):
                        self._next()
                    self.file.dependency.append(self._text())
                    self._expect(";")
                case "message":
                    self._message(self.file.message_type.add(), 0)
                case "enum":
                    self._enum(self.file.enum_type.add())
                case "option":
                    self._skip_to(";")
                case "service" | "extend":
                    self._skip_block()
                case ";":
                    pass
                case word:
                    raise self._unexpected(word)

    def _syntax(self, syntax: str) -> None:
        if syntax not in ("proto2", "proto3"):
            raise InvalidSchema(f"the .proto file has syntax {syntax!r}", hint="use proto2 or proto3")
        self.file.syntax = syntax

    def _message(self, message: DescriptorProto, depth: int) -> None:
        if depth > _DEEPEST:
            raise InvalidSchema(f"messages nested more than {_DEEPEST} deep")
        message.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            match word:
                case "message":
                    self._message(message.nested_type.add(), depth + 1)
                case "enum":
                    self._enum(message.enum_type.add())
                case "oneof":
                    self._oneof(message)
                case "reserved":
                    self._reserved(message)
                case "extensions" | "option":
                    self._skip_to(";")
                case "extend":
                    self._skip_block()
                case ";":
                    pass
                case _:
                    self._field(message, word)
        self._add_own_oneofs(message)

    def _field(self, message: DescriptorProto, word: str, oneof: int | None = None) -> None:
        field = FieldDescriptorProto(label=FieldDescriptorProto.LABEL_OPTIONAL)
        if word in _LABELS and oneof is None:
            field.label = _LABELS[word]
            field.proto3_optional = word == "optional" and self.file.syntax == "proto3"
            word = self._next()
        if word == "group":
            raise InvalidSchema("a .proto file with a group is not supported", hint="use a nested message")
        if word == "map":
            self._map(message, field)
        elif word in SCALARS:
            field.type = SCALARS[word]  # type: ignore[assignment]
        else:
            field.type_name = word
        field.name = self._next() if not field.name else field.name
        self._expect("=")
        field.number = self._number()
        if self._peek() == "[":
            self._options(field)
        self._expect(";")
        if oneof is not None:
            field.oneof_index = oneof
        message.field.append(field)

    def _map(self, message: DescriptorProto, field: FieldDescriptorProto) -> None:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        field.name = self._next()
        entry = message.nested_type.add(name=_camel(field.name) + "Entry")
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            inner = entry.field.add(name=part, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind in SCALARS:
                inner.type = SCALARS[kind]  # type: ignore[assignment]
            else:
                inner.type_name = kind
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name

    def _oneof(self, message: DescriptorProto) -> None:
        place = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip_to(";")
            elif word != ";":
                self._field(message, word, place)

    def _add_own_oneofs(self, message: DescriptorProto) -> None:
        """Give each proto3 optional field a synthetic oneof, after the written ones."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                if self._peek() == "allow_alias":
                    enum.options.allow_alias = True
                self._skip_to(";")
            elif word == "reserved":
                self._skip_to(";")
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=self._number())
                self._skip_to(";")

    def _reserved(self, message: DescriptorProto) -> None:
        while (word := self._next()) != ";":
            if word[0] in "\"'":
                message.reserved_name.append(word[1:-1])
            elif word != ",":
                start = self._as_number(word)
                end = start
                if self._peek() == "to":
                    self._next()
                    last = self._next()
                    end = _LAST_NUMBER - 1 if last == "max" else self._as_number(last)
                message.reserved_range.add(start=start, end=end + 1)

    def _options(self, field: FieldDescriptorProto) -> None:
        """Keep only options that change how a value is encoded; skip the others."""
        self._expect("[")
        depth, key = 1, ""
        while depth:
            word = self._next()
            depth += (word in "[{(") - (word in "]})")
            if depth == 1 and self._peek() == "=":
                key = word
            elif depth == 1 and key and word != "=":
                if key == "packed":
                    field.options.packed = word == "true"
                elif key == "default":
                    field.default_value = word[1:-1] if word[0] in "\"'" else word
                key = ""

    def _skip_to(self, end: str) -> None:
        depth = 0
        while (word := self._next()) != end or depth:
            depth += (word == "{") - (word == "}")

    def _skip_block(self) -> None:
        while self._next() != "{":
            pass
        depth = 1
        while depth:
            word = self._next()
            depth += (word == "{") - (word == "}")

    def _peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def _next(self) -> str:
        if self.at >= len(self.words):
            raise InvalidSchema("the .proto file ends too early", hint="check for an unclosed bracket")
        self.at += 1
        return self.words[self.at - 1]

    def _expect(self, sign: str) -> None:
        word = self._next()
        if word != sign:
            raise self._unexpected(word)

    def _text(self) -> str:
        return self._next()[1:-1]

    def _number(self) -> int:
        return self._as_number(self._next())

    def _as_number(self, word: str) -> int:
        try:
            return int(word, 0)
        except ValueError:
            raise self._unexpected(word) from None

    def _unexpected(self, word: str) -> InvalidSchema:
        before = " ".join(self.words[max(self.at - 6, 0) : self.at])
        return InvalidSchema(f"cannot read the .proto at {word!r}", detail=f"after: {before}")


def _words(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise InvalidSchema(f"cannot read the .proto at {text[at : at + 20]!r}")
        at = found.end()
        if found.lastgroup != "space":
            yield found.group()


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
