"""Re-export the protocols under their old names, until the last modules import the new ones."""

from strandline.ports.codecs import DETAIL, RAW, REASON, Decoded, Decoder, Encoder, Masked
from strandline.ports.codecs import MaskingDecoder as Masking
from strandline.ports.dead_letters import DeadLetterQueue as LetterBox
from strandline.ports.dead_letters import OpenDeadLetterQueue as OpenLetters
from strandline.ports.ledger import LedgerEntry, Recorded, Written
from strandline.ports.raw_records import FILE_NAME, SIZE, SPLIT
from strandline.ports.sinks import OpenSink, SparkSink, Stamp, Writer
from strandline.ports.sinks import RejectingSink as Refuses
from strandline.ports.sinks import TaskWrittenSink as InParts
from strandline.ports.sources import BackfillTarget as Continuing
from strandline.ports.sources import BoundedSource as Ending
from strandline.ports.sources import CommittingSource as Followed
from strandline.ports.sources import FileListSource as Listed
from strandline.ports.sources import ListedFile, SparkSource, topic_of
from strandline.ports.sources import SplittableSource as InPieces
from strandline.ports.sources import TaskReadSource as ByName
from strandline.ports.sources import TopicSource as OfTopics

__all__ = [
    "DETAIL", "FILE_NAME", "RAW", "REASON", "SIZE", "SPLIT", "ByName", "Continuing", "Decoded", "Decoder", "Encoder",
    "Ending", "Followed", "InParts", "InPieces", "LedgerEntry", "LetterBox", "Listed", "ListedFile", "Masked",
    "Masking", "OfTopics", "OpenLetters", "OpenSink", "Recorded", "Refuses", "SparkSink", "SparkSource", "Stamp",
    "Writer", "Written", "topic_of",
]  # fmt: skip
