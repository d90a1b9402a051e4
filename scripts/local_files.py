"""Compiles `spark/java/LocalFiles.java` with the compiler that is part of Spark, so that nobody needs another.

usage: .venv/bin/python scripts/local_files.py
"""

import tempfile
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "src" / "strandline" / "spark" / "java"
SOURCE: Final = FOLDER / "LocalFiles.java"
COMPILED: Final = FOLDER / "LocalFiles.class"


def compiled(jvm: Any) -> bytes:
    """The class, of what the source says now."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(SOURCE.read_text())
    return bytes(compiler.getBytecodes()[COMPILED.stem])


def main() -> None:
    from strandline.spark.session import start_session  # noqa: PLC0415 - brings up Spark

    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("local files", log=Path(folder) / "spark.log")
        COMPILED.write_bytes(compiled(spark.sparkContext._jvm))  # noqa: SLF001 - Spark has no other way
        spark.stop()
    print(f"{COMPILED.stat().st_size} bytes in {COMPILED.name}")


if __name__ == "__main__":
    main()
