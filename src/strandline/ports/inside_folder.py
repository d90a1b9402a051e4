"""Judge whether a path that a manifest names lies in the manifest's own folder."""

from pathlib import Path, PurePosixPath


def is_inside(folder: Path, name: object) -> bool:
    """Whether a relative path stays in the folder: no `..`, no absolute path, no symbolic link that leads out."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or any(len(part.encode(errors="replace")) > 255 for part in path.parts):
        return False
    try:
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a name that is too long, or a circle of links
        return False
