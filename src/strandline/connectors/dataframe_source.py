"""Use a streaming DataFrame of the user as a source."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.errors import InvalidArgument, InvalidStep, Unsupported
from strandline.kernel.blocks.block import OFFSET, OWN, PARTITION
from strandline.model.arguments import checked
from strandline.model.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Frame:
    """A DataFrame with its columns, and optionally the columns with a row's partition and offset."""

    name: str
    columns: tuple[tuple[str, str], ...]
    partition: str | None
    offset: str | None
    frame: "DataFrame" = field(compare=False, repr=False)

    @property
    def partitions(self) -> tuple[str, ...]:
        return ("",) if self.partition is None else ()

    @property
    def types(self) -> dict[str, str]:
        return dict(self.columns)

    @property
    def decoder(self) -> None:
        return None

    def stream(self, spark: "SparkSession") -> "DataFrame":  # noqa: ARG002 - it already belongs to a session
        if self.partition is None or self.offset is None:
            return self.frame
        place = [
            f"cast(`{self.partition}` as string) as `{PARTITION}`",
            f"cast(`{self.offset}` as bigint) as `{OFFSET}`",
        ]
        return self.frame.selectExpr("*", *place)


@checked
def frame(
    dataframe: "DataFrame", *, name: str = "frame", partition: str | None = None, offset: str | None = None
) -> Frame:
    """Use a streaming DataFrame of your session: `frame(spark.readStream.table("orders"))`.

    If it has columns with a partition and an offset, name them: each partition then has its own watermark, and late
    elements and dead letters can be traced to their records. The `name` identifies the source in a checkpoint.
    """
    if type(dataframe).__module__.startswith("pyspark.sql.connect"):
        raise Unsupported(
            "a DataFrame of Spark Connect cannot be a source",
            detail="Strandline needs the JVM of the driver, which Spark Connect does not reach",
            hint="use a session of the driver itself: SparkSession.builder without remote(…)",
        )
    if not hasattr(dataframe, "isStreaming"):
        raise InvalidArgument(
            f"frame(…) cannot take a value of type {type(dataframe).__name__} as dataframe",
            detail="dataframe is a streaming DataFrame of Spark",
            hint="create it with spark.readStream",
        )
    if not dataframe.isStreaming:
        raise InvalidStep("this DataFrame is not a stream", hint="create it with spark.readStream")
    if (partition is None) != (offset is None):
        raise InvalidStep("partition and offset need each other", hint="name both or neither")
    fields = dataframe.schema.fields
    for field_ in fields:
        if field_.name.startswith(OWN):
            raise InvalidStep(f"the column {field_.name!r} starts with @", hint="such names are reserved by Strandline")
    missing = [each for each in (partition, offset) if each is not None and each not in dataframe.columns]
    if missing:
        raise InvalidStep(
            f"there is no column {missing[0]!r}",
            detail=f"the DataFrame has {listed(dataframe.columns)}",
            hint=did_you_mean(missing[0], dataframe.columns),
        )
    return Frame(
        name, tuple((each.name, each.dataType.simpleString()) for each in fields), partition, offset, dataframe
    )
