"""Generate the API's OpenAPI description from its routes and the types of its answers."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Union

from strandline.dashboard.api_types import Problem

_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A path or query parameter: a string with a maximum length, or an integer within bounds."""

    name: str
    read_definition: str
    place: Literal["path", "query"] = "query"
    kind: Literal["string", "integer"] = "string"
    default: str | int | None = None
    least: int = 0
    most: int = 200
    one_of: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self.kind}
        schema |= {"minimum": self.least, "maximum": self.most} if self.kind == "integer" else {"maxLength": self.most}
        if self.one_of:
            schema["enum"] = list(self.one_of)
        return schema if self.default is None else schema | {"default": self.default}


@dataclass(frozen=True, slots=True)
class RouteDescription:
    """A route's description: purpose, parameters, and answer type."""

    path: str
    read_definition: str
    answer: type
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None

    @property
    def method(self) -> str:
        return "get" if self.body is None else "post"


def openapi(routes: Sequence[RouteDescription], version: str) -> dict[str, Any]:
    """Generate the whole description."""
    shapes: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Strandline dashboard", "version": version, "license": {"name": "Apache-2.0"}},
        "security": [{"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(shapes.items())),
            "securitySchemes": {"cookie": {"type": "apiKey", "in": "cookie", "name": "strandline-PORT"}},
        },
    }


def _operation(route: RouteDescription, shapes: dict[str, Any]) -> dict[str, Any]:
    refused = {"description": "refused", "content": _json(schema_of(Problem, shapes))}
    operation: dict[str, Any] = {
        "summary": route.read_definition,
        "parameters": [
            {
                "name": each.name,
                "in": each.place,
                "required": each.place == "path",
                "description": each.read_definition,
                "schema": each.schema,
            }
            for each in route.parameters
        ],
        "responses": {
            "200": {"description": "the answer", "content": _json(schema_of(route.answer, shapes))},
            **dict.fromkeys(("400", "401", "403", "404", "409"), refused),
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(schema_of(route.body, shapes))}
    return operation


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def schema_of(kind: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; dataclasses are defined once, among the shared schemas."""
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _named(kind, shapes)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, shapes) for each in inner]}
    if origin is tuple and inner[-1] is Ellipsis:
        return {"type": "array", "items": schema_of(inner[0], shapes)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [schema_of(each, shapes) for each in inner], "minItems": len(inner)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1], shapes)}
    if kind is dict:
        return {"type": "object"}
    raise TypeError(f"{kind} has no schema")


def _named(kind: type, shapes: dict[str, Any]) -> dict[str, Any]:
    if kind.__name__ not in shapes:
        shapes[kind.__name__] = {}
        hints = typing.get_type_hints(kind)
        shapes[kind.__name__] = {
            "type": "object",
            "properties": {each.name: schema_of(hints[each.name], shapes) for each in dataclasses.fields(kind)},
            "required": [each.name for each in dataclasses.fields(kind)],
            "additionalProperties": False,
        }
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
