"""Which collector of garbage a JVM of ours has: the serial one, unless someone has chosen another."""

import os
import subprocess

import pytest

from strandline.spark.launch.find_java import find_java
from strandline.spark.launch.session import JAVA, ONE_LOG, WITHOUT_ROWS, with_one_collector

DEFAULT = "spark.driver.defaultJavaOptions"
OTHERWISE = f"-XX:TieredStopAtLevel=1 {ONE_LOG}"


def test_nobody_has_chosen_another_and_it_is_the_serial_one() -> None:
    assert with_one_collector(WITHOUT_ROWS, {}) == WITHOUT_ROWS
    told = {"JAVA_TOOL_OPTIONS": "-Xss4m -XX:+UseGCOverheadLimit", "_JAVA_OPTIONS": "-XX:-UseG1GC"}
    assert with_one_collector(WITHOUT_ROWS, told) == WITHOUT_ROWS


@pytest.mark.spark
@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_one_that_is_chosen_for_every_jvm_stays_the_only_one(name: str) -> None:
    chosen = with_one_collector(WITHOUT_ROWS, {name: "-Xss4m -XX:+UseG1GC"})
    assert chosen == WITHOUT_ROWS | {JAVA: OTHERWISE}
    assert "-XX:+UseG1GC" in collectors(chosen[JAVA], {name: "-XX:+UseG1GC"})


def test_one_that_is_chosen_in_the_settings_stays_the_only_one() -> None:
    assert with_one_collector(WITHOUT_ROWS | {DEFAULT: "-XX:+UseZGC"}, {})[JAVA] == OTHERWISE
    assert with_one_collector({DEFAULT: "-XX:+UseZGC"}, {}) == {DEFAULT: "-XX:+UseZGC"}


def collectors(options: str, environ: dict[str, str]) -> str:
    """What a real JVM makes of it; told of two it would not start."""
    command = [str(find_java().path), *options.split(), "-XX:+PrintCommandLineFlags", "-version"]
    return subprocess.run(command, env=os.environ | environ, check=True, capture_output=True, text=True).stdout
