"""Look up the ids of topics. A topic that is deleted and created again has another id."""

import logging
import re
from functools import cache
from typing import Any, Final

from strandline.connectors.kafka.clients import admin_of
from strandline.connectors.kafka.security import Security

_LOG: Final = logging.getLogger("strandline.kafka")
_ANSWER_WITHIN_SECONDS: Final = 5.0
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that a broker without topic ids answers with."""


def topic_ids(
    servers: str, security: Security, topics: tuple[str, ...], *, pattern: bool
) -> dict[str, str | None] | None:
    """Return the id of each topic by name, None for a missing one; None if the broker does not answer."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    admin = _admin(servers, security)
    try:
        names = _matching(admin, topics[0]) if pattern else [*topics]
        answers = admin.describe_topics(TopicCollection(names), request_timeout=_ANSWER_WITHIN_SECONDS) if names else {}
    except KafkaException as problem:
        _LOG.debug("the topics %s were not described: %s", topics, problem)
        return None
    found: dict[str, str | None] = {}
    for name, answer in answers.items():
        try:
            known = str(answer.result(2 * _ANSWER_WITHIN_SECONDS).topic_id)
        except TimeoutError:
            return None
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                _LOG.debug("the topic %s was not described: %s", name, problem)
                return None
            found[name] = None
        else:
            if known != _NO_ID:
                found[name] = known
    return found


def _matching(admin: Any, pattern: str) -> list[str]:
    known = admin.list_topics(timeout=_ANSWER_WITHIN_SECONDS).topics
    return sorted(name for name in known if re.fullmatch(pattern, name))


@cache
def _admin(servers: str, security: Security) -> Any:
    return admin_of(servers, security)
