#!/bin/sh
# Run the pipeline once on what is in the queue "flights":
#
#     sh examples/pipelines/run.sh [FOLDER]
#
# FOLDER is where tables and checkpoints are kept: "flights-pipeline" if there is none. The queues
# are those of SHMQ_URL or SHMQ_NAMESPACE. It takes pip install 'shmq[spark-pipelines]'.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-flights-pipeline}/storage"
cd "${1:-flights-pipeline}"

export JAVA_HOME="$(python -c 'from shmq.spark.java import find_java; print(find_java().spark_home())')"
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"

# The project, with this folder and the place of the queues in its specification.
rm -rf transformations
cp -R "$here/transformations" .
sed -e "s|FOLDER|$PWD|" -e "s|PLACE|${SHMQ_URL:-${SHMQ_NAMESPACE:-default-$(id -u)}}|" \
    "$here/spark-pipeline.yml" > spark-pipeline.yml

exec spark-pipelines run --spec spark-pipeline.yml \
    --conf spark.sql.catalogImplementation=hive \
    --conf spark.sql.warehouse.dir="$PWD/tables" \
    --conf spark.hadoop.javax.jdo.option.ConnectionURL="jdbc:derby:;databaseName=$PWD/metastore;create=true" \
    --conf spark.driver.memory="${DRIVER_MEMORY:-1g}"
