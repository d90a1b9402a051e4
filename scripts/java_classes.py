"""Compiles what `spark/patches/java` holds with the compiler that is part of Spark, so that nobody needs another.

usage: .venv/bin/python scripts/java_classes.py
"""

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "src" / "strandline" / "spark" / "patches" / "java"
LOCAL_FILES: Final = FOLDER / "LocalFiles.class"
TOPIC_BLOCKS: Final = FOLDER / "topic-blocks.jar"
_ANY_DAY: Final = (2026, 1, 1, 0, 0, 0)
"""Or no two jars would be equal."""


def classes(jvm: Any, name: str) -> dict[str, bytes]:
    """What a source makes now, by name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook((FOLDER / f"{name}.java").read_text())
    return {str(each): bytes(code) for each, code in dict(compiler.getBytecodes()).items()}


def jar(found: dict[str, bytes]) -> bytes:
    """Classes in one file, which sessions can be given."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as whole:
        for name, code in sorted(found.items()):
            whole.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _ANY_DAY), code)
    return file.getvalue()


def made(jvm: Any) -> dict[Path, bytes]:
    """All files that are compiled, as the sources say now."""
    return {
        LOCAL_FILES: classes(jvm, LOCAL_FILES.stem)[LOCAL_FILES.stem],
        TOPIC_BLOCKS: jar(classes(jvm, "TopicBlocks")),
    }


def main() -> None:
    from strandline.spark.launch.session import start_session  # noqa: PLC0415 - brings up Spark

    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("java", log=Path(folder) / "spark.log", jars=True)
        found = made(spark.sparkContext._jvm)  # noqa: SLF001 - Spark has no other way
        spark.stop()
    for path, data in found.items():
        path.write_bytes(data)
        print(f"{len(data)} bytes in {path.name}")


if __name__ == "__main__":
    main()
