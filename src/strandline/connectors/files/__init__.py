"""Folders of files: lines and columns read as they arrive; batches written so that each is there as a whole or not."""

from strandline.connectors.files.compaction import Compacted, compact
from strandline.connectors.files.read_manifest import manifested_files, read_manifested
from strandline.connectors.files.sink import Folder, folder
from strandline.connectors.files.source import Files, files

__all__ = ["Compacted", "Files", "Folder", "compact", "files", "folder", "manifested_files", "read_manifested"]
