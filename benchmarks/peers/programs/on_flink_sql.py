"""Run the query in Flink SQL's mini-cluster: JSON, watermark, TUMBLE, CSV files; two slots, a checkpoint per second."""

import csv

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.programs.told import Heard, read_order


def main() -> None:
    order = read_order()
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = tables.get_config()
    settings.set("parallelism.default", "2")
    settings.set("execution.checkpointing.interval", "1s")
    settings.set("state.backend.type", "rocksdb")
    settings.set("table.local-time-zone", "UTC")
    tables.execute_sql(f"""
        CREATE TABLE events (
            `key` BIGINT, `value` BIGINT, `ms` BIGINT, happened AS TO_TIMESTAMP_LTZ(`ms`, 3),
            WATERMARK FOR happened AS happened - INTERVAL '{order.delay // 1000}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = '{order.events}', 'format' = 'json')""")
    tables.execute_sql(f"""
        CREATE TABLE totals (`key` BIGINT, start_ms BIGINT, total BIGINT, plays BIGINT)
        WITH ('connector' = 'filesystem', 'path' = '{order.panes}/flink', 'format' = 'csv')""")
    tables.execute_sql(f"""
        INSERT INTO totals
        SELECT `key`, 1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT),
            SUM(`value`), COUNT(*)
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(happened), INTERVAL '{order.length // 1000}' SECOND))
        GROUP BY `key`, window_start, window_end""").wait()
    heard = Heard(order)
    for path in sorted((order.panes / "flink").rglob("*")):
        if path.is_file() and not path.name.startswith(("_", ".")):
            with path.open() as lines:
                for key, start, total, plays in csv.reader(lines):
                    heard.hear(int(key), int(start), int(total), int(plays))
    heard.tell()


if __name__ == "__main__":
    main()
