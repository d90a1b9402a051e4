"""Run the stages of one batch as functions of blocks. Tasks of Spark and story players call the same functions."""
