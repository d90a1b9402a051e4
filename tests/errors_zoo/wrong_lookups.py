"""Lookup joins that do not fit."""

from typing import Any, Final

from tests.errors_zoo.animals import LOCK, Wrong, scores, sl
from tests.plan.endpoints import PaperSink

USERS: Final = "user string, name string"


def users(columns: str = USERS) -> Any:
    return sl.lookup_sqlite("users.db", columns, table="users")


LOOKUPS: Final[dict[str, Wrong]] = {
    "no key": Wrong(lambda: scores().enrich(users()).on(), "on(…) names no column", "", 'on("user_id")'),
    "an unknown key of the stream": Wrong(
        lambda: scores().enrich(users()).on(usr="user"), "the left stream has no column 'usr'", "team", "'user'"
    ),
    "an unknown key of the table": Wrong(
        lambda: scores().enrich(users()).on(user="usr"), "has no column 'usr'", "user, name", "'user'"
    ),
    "keys of different types": Wrong(
        lambda: scores().enrich(users("user long, name string")).on("user"),
        "the keys 'user' and 'user' have different types",
        "string in the stream, long in lookup_sqlite('users')",
        "cast(user as long)",
    ),
    "a key of a type that is none": Wrong(
        lambda: scores().enrich(users("score double, name string")).on("score"), "key 'score' is a double", "", "str"
    ),
    "a column twice": Wrong(
        lambda: scores().enrich(users()).on("user", team="user"), "names a column of the table twice", "", "once"
    ),
    "a name that is taken": Wrong(
        lambda: scores().enrich(users("user string, team string, team_right string")).on("user"),
        "have a column 'team', and 'team_right' is taken too",
        "",
        "suffix",
    ),
    "retractions": Wrong(
        lambda: (
            scores().event_time("at", sl.bounded(seconds=1)).key_by("user").window(sl.tumbling(minutes=1))
            .accumulate("retracting").aggregate(n=sl.count()).enrich(users()).on("user")
        ),
        "a stream with retractions cannot be enriched",
        "",
        "before the aggregation",
    ),
    "a function that waits for a lock": Wrong(
        lambda: scores().enrich(sl.lookup_function(lambda keys: (LOCK, keys)[1], USERS)).on("user").write(PaperSink()),
        "uses the variable 'LOCK'",
        "lock",
        "create it inside",
    ),
    "an unknown type": Wrong(lambda: users("user string, name strng"), "there is no type 'strng'", "", "'string'"),
    "a nested column": Wrong(
        lambda: users("user string, tags array<string>"), "cannot read the column 'tags'", "array", "leave it out"
    ),
    "a password in the address": Wrong(
        lambda: sl.lookup_postgres("users", USERS, dsn="postgresql://me:hunter2@localhost/shop"),
        "the connection string contains a password",
        "",
        "env:NAME",
    ),
    "a password as text": Wrong(
        lambda: sl.lookup_valkey("valkey://localhost", USERS, key="user:{user}", password="hunter2"),
        "a secret is given by reference",
        "",
        "env:NAME",
    ),
    "a token over HTTP": Wrong(
        lambda: sl.lookup_http("http://crm.example/users/{user}", USERS, token="env:TOKEN"),
        "a secret would be sent to crm.example unencrypted",
        "",
        "https",
    ),
    "an address without a key": Wrong(
        lambda: sl.lookup_http("http://crm.example/users", USERS), "address names no key column", "user", "{user_id}"
    ),
    "a key of a hash that is no column": Wrong(
        lambda: sl.lookup_valkey("valkey://localhost", USERS, key="user:{id}"), "names no column", "user, name", "user:"
    ),
    "a key that is not in the pattern": Wrong(
        lambda: scores().enrich(sl.lookup_valkey("valkey://localhost", USERS, key="user:{user}")).on(team="name"),
        "finds rows by user only",
        "name",
        "name user",
    ),
    "no row in the cache": Wrong(
        lambda: scores().enrich(users(), cache_for="1m", cache_rows=0).on("user"), "cache_rows is 0", "", "1 or more"
    ),
    "no request in a second": Wrong(
        lambda: scores().enrich(users(), per_second=0.0).on("user"), "per_second is 0.0", "", "above 0"
    ),
    "a negative age": Wrong(
        lambda: scores().enrich(users(), cache_for="-1m").on("user"), "cache_for is", "", "zero or more"
    ),
    "a word for missing rows": Wrong(
        lambda: scores().enrich(users(), missing="left"), "'left'", "", "drop"
    ),
    "a sink": Wrong(lambda: scores().enrich(sl.sqlite("users.db")), "enrich", "", "lookup_postgres"),
}  # fmt: skip
