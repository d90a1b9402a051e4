"""Declare the `strandline schema` commands."""

from pathlib import Path
from typing import Annotated

import typer

schema_app = typer.Typer(name="schema", help="List, check and register schemas in a registry.", no_args_is_help=True)

RegistryOption = Annotated[
    str | None, typer.Option("--registry", help="The address of the registry. Default: STRANDLINE_REGISTRY.")
]
UserOption = Annotated[str | None, typer.Option(help="Reference to the user name: env:NAME or file:PATH.")]
PasswordOption = Annotated[str | None, typer.Option(help="Reference to the password: env:NAME or file:PATH.")]
TokenOption = Annotated[str | None, typer.Option(help="Reference to a token: env:NAME or file:PATH.")]
KindOption = Annotated[str | None, typer.Option(help="avro, protobuf or json. Default: by the file name.")]


@schema_app.command("list")
def schema_list(
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List subjects with version and compatibility."""
    from strandline.cli.actions.schema import RegistryOptions, run_list

    raise typer.Exit(run_list(RegistryOptions(registry, user, password, token), as_json=as_json))


@schema_app.command("show")
def schema_show(
    subject: Annotated[str, typer.Argument(help="The subject.")],
    version: Annotated[int | None, typer.Option(help="The version. Default: the latest.")] = None,
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a schema and its columns as DDL."""
    from strandline.cli.actions.schema import RegistryOptions, run_show

    raise typer.Exit(run_show(RegistryOptions(registry, user, password, token), subject, version, as_json=as_json))


@schema_app.command("check")
def schema_check(  # noqa: PLR0913, PLR0917 - typer takes a command's options from its arguments
    subject: Annotated[str, typer.Argument(help="The subject.")],
    file: Annotated[Path, typer.Argument(help="The new schema.")],
    kind: KindOption = None,
    level: Annotated[str | None, typer.Option(help="A compatibility level. Default: the subject's.")] = None,
    registry: RegistryOption = None,
    user: UserOption = None,
    password: PasswordOption = None,
    token: TokenOption = None,
) -> None:
    """Check whether a new schema is compatible. Exit 0 if it is, 1 with the reasons if not."""
    from strandline.cli.actions.schema import RegistryOptions, run_check

    raise typer.Exit(run_check(RegistryOptions(registry, user, password, token), subject, file, kind, level))


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
    """Register a compatible schema and print its id."""
    from strandline.cli.actions.schema import RegistryOptions, run_register

    raise typer.Exit(run_register(RegistryOptions(registry, user, password, token), subject, file, kind))
