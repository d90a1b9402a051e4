"""Keep bronze, silver and gold tables of Delta Lake in one job, each batch committed once to each of them.

bronze   every score that could be decoded, as it was read; lake/bronze_dead holds the dead letters with their reasons
silver   scores of known teams, with the minute of their event time
gold     the total of each team in windows of five seconds, corrected when late scores arrive

    python examples/medallion.py            # needs: pip install "strandline[delta]"
"""

import polars as pl

import strandline as sl

TEAMS = ("amber", "blue", "coral", "jade")

scores = sl.read(sl.scores(seed=7, events=3_000, rate=1_500)).event_time("at", sl.bounded(seconds=3))

bronze = scores.write(sl.delta("lake/bronze"))

known = scores.where(pl.col("team").is_in(TEAMS)).with_columns(minute=pl.col("at").dt.truncate("1m"))
silver = known.write(sl.delta("lake/silver"))

totals = (
    known.key_by("team")
    .window(sl.tumbling(seconds=5))
    .trigger(sl.after_watermark(late=sl.after_count(1)))
    .accumulate(sl.retracting)
    .allow_lateness(minutes=3)
    .aggregate(total=sl.sum("score"), plays=sl.count())
)
gold = totals.write(sl.delta("lake/gold", mode="upsert"))

if __name__ == "__main__":
    from deltalake import DeltaTable

    sl.together(bronze, silver, gold).run(checkpoint="lake/job").await_end()
    layers = {name: pl.DataFrame(DeltaTable(f"lake/{name}").scan()) for name in ("bronze", "silver", "gold")}
    for name, rows in layers.items():
        print(f"{name}: {rows.height} rows, {DeltaTable(f'lake/{name}').version()} commits")
    print(layers["gold"].sort("window_start", "team").select("team", "window_start", "total", "plays").head(8))
    if layers["gold"]["plays"].sum() != layers["silver"].height:
        raise SystemExit("gold does not count every row of silver")
