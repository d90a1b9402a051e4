"""Folders of files: lines through our formats, columns as Spark reads them; new files are read as they arrive."""

from strandline.connectors.files.source import Files, files

__all__ = ["Files", "files"]
