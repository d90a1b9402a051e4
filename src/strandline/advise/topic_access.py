"""Turn command-line options for a topic into values, and into the code that a pipeline needs.

Only options of `sl.tls`, `sl.sasl` and `sl.registry` are accepted, and passwords only by reference, as there.
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
"""Each format with its function and the options it takes besides a schema."""


@dataclass(frozen=True, slots=True)
class CodeValue:
    """A value, and the code that creates it in a pipeline."""

    value: Any
    code: str


@dataclass(frozen=True, slots=True)
class Access:
    """Options of a topic: brokers, format and credentials; some as NAME=VALUE."""

    servers: str = "localhost:9092"
    format: str = "json"
    schema: str | None = None
    """DDL, or the path of a schema file."""
    subject: str | None = None
    message: str | None = None
    registry: str | None = None
    security: tuple[str, ...] = ()
    registry_security: tuple[str, ...] = ()


def call(function: Callable[..., Any], *given: Any, **options: Any) -> CodeValue:
    """Call a public function and record the call as code; options that are None are left out."""
    kept = {name: each for name, each in options.items() if each is not None}
    arguments = [_code(each) for each in given] + [f"{name}={_code(each)}" for name, each in kept.items()]
    value = function(*map(_value, given), **{name: _value(each) for name, each in kept.items()})
    return CodeValue(value, f"sl.{function.__name__}({', '.join(arguments)})")


def security_of(access: Access) -> CodeValue | None:
    """Return SASL if a mechanism is given, TLS for other options, None without any."""
    given = _options(access.security, "--security", (*_SASL, *_TLS))
    if not given:
        return None
    mechanism = given.pop("mechanism", None)
    known = _TLS if mechanism is None else _SASL
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        protocol = "TLS without SASL" if mechanism is None else "SASL"
        raise InvalidStep(f"{unknown} is not an option of {protocol}", hint="give a mechanism for SASL, none for TLS")
    if mechanism is None:
        return call(tls, **given)
    if not {"user", "password"} <= given.keys():
        raise InvalidStep(
            f"{mechanism} needs a user and a password", hint="--security user=… --security password=env:…"
        )
    return call(sasl, mechanism, **{**given, **_truth(given, "over_tls")})


def value_of(access: Access, topic: str) -> CodeValue | None:
    """Return the record format; None for JSON without a schema."""
    if access.format not in _FORMATS:
        raise InvalidStep(f"there is no format {access.format!r}", hint=f"choose one of {', '.join(_FORMATS)}")
    function, takes = _FORMATS[access.format]
    given: dict[str, Any] = {"registry": _registry(access), "subject": access.subject, "message": access.message}
    unknown = next((name for name, each in given.items() if each is not None and name not in takes), None)
    if unknown is not None:
        raise InvalidStep(f"{access.format} has no {unknown}", hint=f"leave --{unknown} out")
    if access.schema is None and given["registry"] is None:
        if access.format == "json":
            return None
        raise InvalidStep(f"{access.format} cannot be read without a schema", hint="give --schema, or --registry")
    if access.schema is None and "subject" in takes:
        given["subject"] = access.subject or f"{topic}-value"
    elif access.schema is None:
        raise InvalidStep(f"{access.format} needs its columns", hint='give --schema "team string, at timestamp"')
    schema = () if access.schema is None else (_schema(access.schema),)
    return call(function, *schema, **{name: given[name] for name in takes})


def _registry(access: Access) -> CodeValue | None:
    given = _options(access.registry_security, "--registry-security", _REGISTRY)
    if access.registry is None:
        if given:
            raise InvalidStep("no registry is given", hint="give --registry http://localhost:8081")
        return None
    return call(registry, access.registry, **given)


def _schema(text: str) -> CodeValue:
    path = Path(text)
    if path.suffix not in (".avsc", ".proto", ".json"):
        return CodeValue(text, json.dumps(text))
    try:
        return CodeValue(path.read_text(encoding="utf-8"), f"pathlib.Path({json.dumps(text)}).read_text()")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidStep(f"the schema {text} cannot be read", detail=str(problem)) from None


def _options(given: Iterable[str], option: str, known: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if name not in known or not sign:
            # The value may hold a secret, so only the name is repeated.
            raise InvalidStep(f"{option} has no {name!r}", hint=f"write NAME=VALUE, with one of {', '.join(known)}")
        found[name] = value
    return found


def _truth(given: Mapping[str, str], name: str) -> dict[str, bool]:
    if name not in given:
        return {}
    if given[name] not in ("true", "false"):
        raise InvalidStep(f"{name} must be true or false", hint=f"write {name}=true")
    return {name: given[name] == "true"}


def _value(given: Any) -> Any:
    return given.value if isinstance(given, CodeValue) else given


def _code(given: Any) -> str:
    if isinstance(given, CodeValue):
        return given.code
    return json.dumps(given, ensure_ascii=False) if isinstance(given, str | dict) else repr(given)
