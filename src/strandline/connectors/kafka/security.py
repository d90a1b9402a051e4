"""Configure TLS and SASL for a Kafka cluster, with the option names of both clients, Java's and librdkafka's."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from strandline.errors import InvalidStep
from strandline.formats.secrets import Secret, secret
from strandline.model.arguments import checked

_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True)
class Security:
    """Connection security settings. Passwords are references that are resolved when a client is made."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str | None = None
    password: Secret | None = None
    token_url: str | None = None
    authority: str | None = None
    """PEM file with the certificate authorities that verify the brokers; the system's own if None."""
    certificate: str | None = None
    """PEM file with the client's certificate and its key."""

    def to_java(self) -> dict[str, str]:
        """Return the options of the Java client."""
        options = {"security.protocol": self.protocol}
        if self.authority is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority}
        if self.certificate is not None:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        if self.mechanism is not None:
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._login()}
        if self.token_url is not None:
            options |= {
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.login.callback.handler.class": _TOKENS,
            }
        return options

    def _login(self) -> str:
        names = ("clientId", "clientSecret") if self.mechanism == "OAUTHBEARER" else ("username", "password")
        credentials = dict(
            zip(names, (self.user or "", "" if self.password is None else self.password.reveal()), strict=True)
        )
        inside = " ".join(f'{name}="{_escaped(value)}"' for name, value in credentials.items())
        return f"{_MODULES[self.mechanism or '']} required {inside};"

    def to_librdkafka(self) -> dict[str, str]:
        """Return the options of the Python client."""
        options = {"security.protocol": self.protocol}
        if self.authority is not None:
            options["ssl.ca.location"] = self.authority
        if self.certificate is not None:
            options |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        if self.mechanism is None:
            return options
        options["sasl.mechanism"] = self.mechanism
        password = "" if self.password is None else self.password.reveal()
        if self.mechanism == "OAUTHBEARER":
            tokens = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": self.token_url or ""}
            client = {"sasl.oauthbearer.client.id": self.user or "", "sasl.oauthbearer.client.secret": password}
            return options | tokens | client
        return options | {"sasl.username": self.user or "", "sasl.password": password}


def server_list(servers: str | Sequence[str]) -> str:
    """Return bootstrap servers as Kafka's clients take them: `a:9092,b:9092`."""
    given = servers.split(",") if isinstance(servers, str) else servers
    found = [each.strip() for each in given]
    if not found or not all(found):
        raise InvalidStep("a server has no name", hint='write servers="localhost:9092", or a list of such texts')
    return ",".join(found)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


@checked
def tls(*, authority: str | Path | None = None, certificate: str | Path | None = None) -> Security:
    """Connect over TLS. Both arguments are PEM files: the brokers' certificate authorities, and the client's
    certificate."""
    return Security("SSL", authority=_text(authority), certificate=_text(certificate))


@checked
def sasl(
    mechanism: str,
    *,
    user: str,
    password: str | Secret,
    token_url: str | None = None,
    over_tls: bool = True,
    authority: str | Path | None = None,
) -> Security:
    """Authenticate with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or OAUTHBEARER with the URL that issues tokens.

    The password is a reference, `"env:NAME"` or `"file:path"`, never the password itself.
    """
    if mechanism not in _MODULES:
        raise InvalidStep(f"unknown SASL mechanism {mechanism!r}", hint=f"choose one of {', '.join(_MODULES)}")
    if (mechanism == "OAUTHBEARER") != (token_url is not None):
        raise InvalidStep(
            "OAUTHBEARER needs a token_url, and no other mechanism takes one",
            hint="give the URL that issues tokens, or leave token_url out",
        )
    if token_url is not None and not _is_safe(token_url):
        raise InvalidStep(
            "the client secret would be sent to the token_url unencrypted", hint="write https://…, or use localhost"
        )
    protocol = "SASL_SSL" if over_tls else "SASL_PLAINTEXT"
    return Security(protocol, mechanism, user, secret(password), token_url, _text(authority))


def _is_safe(url: str) -> bool:
    """Whether a URL is encrypted or leads to this machine, and contains no password."""
    parts = urlsplit(url)
    if parts.password is not None or not parts.hostname:
        return False
    with suppress(ValueError):
        return parts.scheme == "https" or ip_address(parts.hostname).is_loopback
    return parts.hostname == "localhost"


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
