"""Starts servers on loopback for programs of Spark, each in a JVM that ends with the process that started it."""

from __future__ import annotations

import sys
import threading
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def hdfs(jvm: Any, folder: str) -> str:
    """Start a namenode and a datanode; returns the URI of the file system."""
    builder = getattr(jvm.org.apache.hadoop.hdfs, "MiniDFSCluster$Builder")
    cluster = builder(jvm.org.apache.hadoop.conf.Configuration(), jvm.java.io.File(folder)).build()
    return f"hdfs://127.0.0.1:{cluster.getNameNodePort()}"


def metastore(jvm: Any, folder: str) -> str:
    """Start a Hive metastore over a new Derby database; returns its URI.

    Its own program would listen on all addresses of the host.
    """
    hive, thrift = jvm.org.apache.hadoop.hive, jvm.org.apache.thrift
    conf = hive.conf.HiveConf()
    conf.set("javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={folder}/db;create=true")
    conf.set("datanucleus.schema.autoCreateAll", "true")
    conf.set("hive.metastore.schema.verification", "false")
    conf.set("hive.metastore.warehouse.dir", f"{folder}/warehouse")
    base = getattr(hive.metastore, "HiveMetaStore$HMSHandler")("tests", conf, False)
    handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler(base, conf, False)
    socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    arguments = getattr(thrift.server, "TThreadPoolServer$Args")(socket)
    processor = hive.metastore.TSetIpAddressProcessor(handler)
    server = thrift.server.TThreadPoolServer(arguments.processor(processor))
    threading.Thread(target=server.serve, daemon=True).start()
    return f"thrift://127.0.0.1:{socket.getServerSocket().getLocalPort()}"


def main(folder: str, server: str, class_path: str) -> None:
    """Start a server, tell its address, and serve until standard input ends."""
    settings = {"spark.driver.memory": "512m", "spark.driver.extraClassPath": class_path}
    jvm = launch_gateway(SparkConf(loadDefaults=False).setAll([*settings.items()])).jvm
    sys.stdout.write({"hdfs": hdfs, "metastore": metastore}[server](jvm, folder) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
