"""The words of `strandline schema`, and their options."""

from pathlib import Path
from typing import Annotated

import typer

schema_app = typer.Typer(name="schema", help="Schemas in a registry.", no_args_is_help=True)

RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="The registry's address; else STRANDLINE_REGISTRY says it.")
]
UserOption = Annotated[str | None, typer.Option(help="Where the user is kept: env:NAME or file:PATH.")]
PasswordOption = Annotated[str | None, typer.Option(help="Where the password is kept: env:NAME or file:PATH.")]
TokenOption = Annotated[str | None, typer.Option(help="Where a token is kept: env:NAME or file:PATH.")]
KindOption = Annotated[str | None, typer.Option(help="avro, protobuf or json; else the file's name says it.")]


@schema_app.command("list")
def schema_list(
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Every subject, its latest version and its level of compatibility."""
    from strandline.cli.actions.schema import Where, run_list

    raise typer.Exit(run_list(Where(registry, user, password, token), as_json=as_json))


@schema_app.command("show")
def schema_show(
    subject: Annotated[str, typer.Argument(help="The subject.")],
    version: Annotated[int | None, typer.Option(help="Which version; the latest if not given.")] = None,
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """A schema's text, and its columns as DDL."""
    from strandline.cli.actions.schema import Where, run_show

    raise typer.Exit(run_show(Where(registry, user, password, token), subject, version, as_json=as_json))


@schema_app.command("check")
def schema_check(  # noqa: PLR0913, PLR0917 - typer takes a command's options from its arguments
    subject: Annotated[str, typer.Argument(help="The subject.")],
    file: Annotated[Path, typer.Argument(help="The new schema.")],
    kind: KindOption = None,
    level: Annotated[str | None, typer.Option(help="A level of compatibility; the subject's if not given.")] = None,
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
) -> None:
    """Whether a new schema would fit: exit 0 if it does, 1 with the reasons if not."""
    from strandline.cli.actions.schema import Where, run_check

    raise typer.Exit(run_check(Where(registry, user, password, token), subject, file, kind, level))


@schema_app.command("register")
def schema_register(
    subject: Annotated[str, typer.Argument(help="The subject.")],
    file: Annotated[Path, typer.Argument(help="The new schema.")],
    kind: KindOption = None,
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
) -> None:
    """Register a schema that fits, and say its id."""
    from strandline.cli.actions.schema import Where, run_register

    raise typer.Exit(run_register(Where(registry, user, password, token), subject, file, kind))
