"""The data source ``kip30``: the start of ``spark.read.format("kip30")`` and ``df.write``."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from typing_extensions import override

from kip30.driver.scanning import Layout
from kip30.pipeline.spark.frame_writer import (
    Kip30Writer,
    WriteOptions,
    check_columns,
    refuse_overwrite,
)
from kip30.pipeline.spark.schemas import spark_schema
from kip30.pipeline.spark.source import FORMAT, Kip30Reader, ScanOptions


class Kip30DataSource(DataSource):
    """Reads a store in bulk, and writes keys into one."""

    @classmethod
    @override
    def name(cls) -> str:
        return FORMAT

    @override
    def schema(self) -> StructType:
        return spark_schema(Layout(self.options.get("layout", Layout.KIP30.value)))

    @override
    def reader(self, schema: StructType) -> Kip30Reader:
        del schema
        return Kip30Reader(ScanOptions.parse(self.options))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> Kip30Writer:
        if overwrite:
            refuse_overwrite()
        options = WriteOptions.parse(self.options)
        check_columns(schema)
        return Kip30Writer(options)
