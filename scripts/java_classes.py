"""Compile the sources in `spark/patches/java` with the compiler that ships with Spark, so that no other is needed.

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
_FIXED_DATE: Final = (2026, 1, 1, 0, 0, 0)
"""Makes equal sources give equal jars."""


def classes(jvm: Any, name: str) -> dict[str, bytes]:
    """Compile a source and return its classes by name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook((FOLDER / f"{name}.java").read_text())
    return {str(each): bytes(code) for each, code in dict(compiler.getBytecodes()).items()}


def jar(found: dict[str, bytes]) -> bytes:
    """Pack classes into a jar, which can be added to a session."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as whole:
        for name, code in sorted(found.items()):
            whole.writestr(zipfile.ZipInfo(f"{name.replace('.', '/')}.class", _FIXED_DATE), code)
    return file.getvalue()


def compiled(jvm: Any) -> dict[Path, bytes]:
    """Return the contents of all compiled files, from the current sources."""
    return {
        LOCAL_FILES: classes(jvm, LOCAL_FILES.stem)[LOCAL_FILES.stem],
        TOPIC_BLOCKS: jar(classes(jvm, "TopicBlocks")),
    }


def main() -> None:
    from strandline.spark.launch.session import start_session  # noqa: PLC0415 - loads Spark

    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("java", log=Path(folder) / "spark.log", jars=True)
        found = compiled(spark.sparkContext._jvm)  # noqa: SLF001 - Spark has no other way
        spark.stop()
    for path, data in found.items():
        path.write_bytes(data)
        print(f"{len(data)} bytes in {path.name}")


if __name__ == "__main__":
    main()
