"""What the registry knows about schemas themselves, until it is given better rules: the shape of each kind."""

import json
from collections.abc import Callable, Sequence
from typing import Final

from strandline.services.registry_store import Schema, Use

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class PlainRules:
    """Reads schemas as far as their shape; takes any new one beside those before it."""

    def unreadable(self, schema: Schema, resolve: Callable[[Use], Schema]) -> str | None:
        for use in schema.uses:
            resolve(use)
        if schema.kind == "PROTOBUF":
            return None if "message" in schema.text or "enum" in schema.text else "it declares no message"
        shape = json.loads(schema.text)
        if schema.kind == "JSON":
            return None if isinstance(shape, dict | bool) else "a JSON schema is an object or a boolean"
        return None if isinstance(shape, dict | list) or shape in _PRIMITIVE else "this is no Avro type"

    def problems(
        self, schema: Schema, before: Sequence[Schema], level: str, resolve: Callable[[Use], Schema]
    ) -> list[str]:  # noqa: ARG002, E501
        return []
