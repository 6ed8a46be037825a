"""read_committed consumers of Python, commanded as conformance/java is.

Lines on stdin:   read BOOTSTRAP TOPIC
Answers:          {"ok": true, "values": ["a", "b"]} or {"error": "..."}

The argument says which client reads: librdkafka or aiokafka. Each reads
partition 0 from the start to what it holds to be the end, and then is watched
for a while for what it must not see.
"""

import asyncio
import json
import sys
import time

LONGER = 0.3  # seconds


def librdkafka(bootstrap, topic):
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "interop",  # required, and unused: the partition is assigned
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,  # an event at the last stable offset
    })
    values, until = [], None
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while until is None or time.monotonic() < until:
            message = consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                until = until or time.monotonic() + LONGER
            else:
                raise KafkaException(message.error())
    finally:
        consumer.close()
    return values


def aiokafka(bootstrap, topic):
    return asyncio.run(aiokafka_values(bootstrap, topic))


async def aiokafka_values(bootstrap, topic):
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    values = []

    async def poll():
        for records in (await consumer.getmany(timeout_ms=50)).values():
            values.extend(record.value.decode() for record in records)

    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        # With this isolation the end is the last stable offset.
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            await poll()
        until = time.monotonic() + LONGER
        while time.monotonic() < until:
            await poll()
    finally:
        await consumer.stop()
    return values


def main():
    read = {"librdkafka": librdkafka, "aiokafka": aiokafka}[sys.argv[1]]
    for line in sys.stdin:
        try:
            command, bootstrap, topic = line.split()
            if command != "read":
                raise ValueError(f"no command {command}")
            answer = {"ok": True, "values": read(bootstrap, topic)}
        except Exception as e:  # whatever it is, the test has to hear of it
            answer = {"error": repr(e)}
        print(json.dumps(answer), flush=True)


main()
