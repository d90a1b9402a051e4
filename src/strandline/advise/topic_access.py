"""How a topic is reached and read, as the command line says it: as a value, and in the words of a pipeline.

Only what `sl.tls`, `sl.sasl` and `sl.registry` take is taken here, and passwords by reference alone, as there.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.connectors.kafka.security import sasl, tls
from strandline.errors import InvalidStep
from strandline.formats.avro.codec import avro
from strandline.formats.csv import csv
from strandline.formats.json.codec import json as json_records
from strandline.formats.protobuf.codec import protobuf
from strandline.formats.registry.client import registry

_TLS: Final = ("authority", "certificate")
_SASL: Final = ("mechanism", "user", "password", "token_url", "over_tls", "authority")
_REGISTRY: Final = ("user", "password", "token", "ca")
_FORMATS: Final[Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]]] = {
    "json": (json_records, ("registry",)),
    "avro": (avro, ("registry", "subject")),
    "protobuf": (protobuf, ("registry", "subject", "message")),
    "csv": (csv, ()),
}
"""Each with what it takes besides a schema."""


@dataclass(frozen=True, slots=True)
class Said:
    """A value, and how a pipeline writes it."""

    value: Any
    words: str


@dataclass(frozen=True, slots=True)
class Access:
    """What was said of a topic: its brokers, its format, and how to come in; options as NAME=VALUE."""

    servers: str = "localhost:9092"
    format: str = "json"
    schema: str | None = None
    """DDL, or a file that holds a schema."""
    subject: str | None = None
    message: str | None = None
    registry: str | None = None
    security: tuple[str, ...] = ()
    registry_security: tuple[str, ...] = ()


def call(function: Callable[..., Any], *given: Any, **options: Any) -> Said:
    """A public word with its arguments; those that are None were not said."""
    kept = {name: each for name, each in options.items() if each is not None}
    words = [_written(each) for each in given] + [f"{name}={_written(each)}" for name, each in kept.items()]
    value = function(*map(_meant, given), **{name: _meant(each) for name, each in kept.items()})
    return Said(value, f"sl.{function.__name__}({', '.join(words)})")


def security_of(access: Access) -> Said | None:
    """TLS, or SASL where a mechanism is named; None: in the clear."""
    asked = _options(access.security, "--security", (*_SASL, *_TLS))
    if not asked:
        return None
    mechanism = asked.pop("mechanism", None)
    known = _TLS if mechanism is None else _SASL
    stray = next((name for name in asked if name not in known), None)
    if stray is not None:
        way = "TLS alone" if mechanism is None else "SASL"
        raise InvalidStep(f"{stray} means nothing to {way}", hint="name a mechanism for SASL, and none for TLS alone")
    if mechanism is None:
        return call(tls, **asked)
    if not {"user", "password"} <= asked.keys():
        raise InvalidStep(
            f"{mechanism} wants a user and a password", hint="--security user=… --security password=env:…"
        )
    return call(sasl, mechanism, **{**asked, **_truth(asked, "over_tls")})


def value_of(access: Access, topic: str) -> Said | None:
    """The format of the records; None for JSON of which nothing more is known."""
    if access.format not in _FORMATS:
        raise InvalidStep(f"there is no format {access.format!r}", hint=f"choose one of {', '.join(_FORMATS)}")
    function, takes = _FORMATS[access.format]
    asked: dict[str, Any] = {"registry": _registry(access), "subject": access.subject, "message": access.message}
    stray = next((name for name, each in asked.items() if each is not None and name not in takes), None)
    if stray is not None:
        raise InvalidStep(f"{access.format} has no {stray}", hint=f"leave --{stray} out")
    if access.schema is None and asked["registry"] is None:
        if access.format == "json":
            return None
        raise InvalidStep(f"{access.format} cannot be read without a schema", hint="give --schema, or --registry")
    if access.schema is None and "subject" in takes:
        asked["subject"] = access.subject or f"{topic}-value"
    elif access.schema is None:
        raise InvalidStep(f"{access.format} wants its columns", hint='give --schema "team string, at timestamp"')
    given = () if access.schema is None else (_schema(access.schema),)
    return call(function, *given, **{name: asked[name] for name in takes})


def _registry(access: Access) -> Said | None:
    asked = _options(access.registry_security, "--registry-security", _REGISTRY)
    if access.registry is None:
        if asked:
            raise InvalidStep("no registry is named", hint="give --registry http://localhost:8081")
        return None
    return call(registry, access.registry, **asked)


def _schema(said: str) -> Said:
    path = Path(said)
    if path.suffix not in (".avsc", ".proto", ".json"):
        return Said(said, json.dumps(said))
    try:
        return Said(path.read_text(encoding="utf-8"), f"pathlib.Path({json.dumps(said)}).read_text()")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidStep(f"the schema {said} cannot be read", detail=str(problem)) from None


def _options(said: Iterable[str], option: str, known: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for each in said:
        name, sign, value = each.partition("=")
        if name not in known or not sign:
            # What was given may hold a secret, so only its name is repeated.
            raise InvalidStep(f"{option} has no {name!r}", hint=f"write NAME=VALUE, with one of {', '.join(known)}")
        found[name] = value
    return found


def _truth(asked: Mapping[str, str], name: str) -> dict[str, bool]:
    if name not in asked:
        return {}
    if asked[name] not in ("true", "false"):
        raise InvalidStep(f"{name} is true or false", hint=f"write {name}=true")
    return {name: asked[name] == "true"}


def _meant(given: Any) -> Any:
    return given.value if isinstance(given, Said) else given


def _written(given: Any) -> str:
    if isinstance(given, Said):
        return given.words
    return json.dumps(given, ensure_ascii=False) if isinstance(given, str | dict) else repr(given)
