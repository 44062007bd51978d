"""A query of Spark for its tests: `python spark_job.py MASTER FOLDER`.

It reads FOLDER/in, a file for each batch, learns, and writes FOLDER/out; FOLDER/checkpoint has its
states. It ends when all files were learned, and writes the pools of its shards to FOLDER/pools.
"""

import sys
from pathlib import Path

import obax
from obax.estimators import Pool, StreamingClassifier
from obax.integrations.spark import learn, read

SCHEMA = "t long, shop string, a double, b double, target string"


def initial():
    return Pool(StreamingClassifier(), "shop", shards=1)


def session(master):
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(master, folder):
    spark = session(master)
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = reader.json(str(folder / "in"))
    learned = learn(rows, initial(), drop=["t"], order="t", shards=4)
    writer = learned.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    (folder / "pools").mkdir()
    for shard, pool in enumerate(read(spark, str(folder / "checkpoint"), initial())):
        obax.save(folder / "pools" / f"{shard}.obax", pool)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
