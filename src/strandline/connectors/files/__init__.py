"""File folder connector: read lines and columns as files arrive, and write batches atomically."""

from strandline.connectors.files.compaction import Compacted, compact
from strandline.connectors.files.read_manifest import manifested_files, read_manifested
from strandline.connectors.files.sink import Folder, folder
from strandline.connectors.files.source import Files, files

__all__ = ["Compacted", "Files", "Folder", "compact", "files", "folder", "manifested_files", "read_manifested"]
