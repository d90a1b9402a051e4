"""Load what a user names by an import path: `file.py:name` or `package.module:name`."""

import importlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from strandline.errors import SetupError


def object_at(where: str, usual: str = "", folder: Path | None = None) -> Any:
    """Return the object at an import path, or None if the module has none of that name.

    Files and modules are looked for in a folder, by default the current one; `usual` is the name without a colon.
    """
    place, _, name = where.partition(":")
    module = _module(place, (folder or Path.cwd()).absolute())
    return getattr(module, name or usual, None) if name or usual else None


def _module(place: str, folder: Path) -> Any:
    path = Path(place)
    if path.suffix != ".py":
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as problem:
            raise SetupError(
                f"there is no module {place}", detail=str(problem), hint="give a file, as in job.py"
            ) from None
        finally:
            sys.path.remove(str(folder))
    path = path if path.is_absolute() else folder / path
    if not path.is_file():
        raise SetupError(f"there is no file {place}", hint="check the path")
    # Workers import the file's functions by its module name, so its folder must be on the path.
    sys.path.insert(0, str(path.absolute().parent))
    loader = _FromSource(path.stem, str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None  # noqa: S101 - a .py file has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    loader.exec_module(module)
    return module


class _FromSource(SourceFileLoader):
    """Compile a file at each load. Python's cache misses a change that keeps the size, within the same second."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - a part of the protocol
        return self.source_to_code(self.get_data(self.path), self.path)
