"""librdkafka in ordinary use, commanded as conformance/java's Ordinary is.

The argument is a JSON file of client properties.

Lines on stdin:
    produce TOPIC VALUE
    consume GROUP TOPIC             subscribed, read_committed, to the end; commits its offsets
    transfer ID GROUP FROM TO END   consume, produce and commit offsets in one transaction
Answers: {"ok": true, "values": [...]} or {"error": "NAME"}, a name of the
protocol, or one of librdkafka's own, which begin with _.
"""

import json
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

PATIENCE = 110  # seconds


def client(more):
    """A configuration that keeps the first error that ends a client's work."""
    with open(sys.argv[1]) as file:
        config = json.load(file)
    fatal = []

    def on_error(error):
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            fatal.append(error)

    config.update(more, error_cb=on_error)
    return config, fatal


def check(fatal):
    if fatal:
        raise KafkaException(fatal[0])


def produce(topic, value):
    config, fatal = client({"message.timeout.ms": PATIENCE * 1000})
    producer, reports = Producer(config), []
    producer.produce(topic, value, on_delivery=lambda error, _: reports.append(error))
    until = time.monotonic() + PATIENCE
    while not reports and time.monotonic() < until:
        producer.poll(0.05)
        check(fatal)
    if not reports or reports[0]:
        raise KafkaException(reports[0] if reports else KafkaError(KafkaError._TIMED_OUT))
    return []


def consumer_of(group):
    config, fatal = client({
        "group.id": group, "isolation.level": "read_committed", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })
    return Consumer(config), fatal


def poll(consumer, fatal, topic):
    consumer.subscribe([topic])
    values, until = [], time.monotonic() + PATIENCE
    while time.monotonic() < until:
        message = consumer.poll(0.05)
        check(fatal)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return values
        else:
            raise KafkaException(message.error())
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def consume(group, topic):
    consumer, fatal = consumer_of(group)
    try:
        values = poll(consumer, fatal, topic)
        if values:
            consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()


def transfer(transactional_id, group, source, target, end):
    config, _ = client({"transactional.id": transactional_id})
    producer = Producer(config)
    producer.init_transactions(PATIENCE)
    consumer, fatal = consumer_of(group)
    try:
        values = poll(consumer, fatal, source)
        producer.begin_transaction()
        for value in values:
            producer.produce(target, value)
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE)
        if end == "commit":
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)
        return values
    finally:
        consumer.close()


def main():
    commands = {"produce": produce, "consume": consume, "transfer": transfer}
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = {"ok": True, "values": commands[command](*words)}
        except KafkaException as e:
            print(e, file=sys.stderr)
            answer = {"error": e.args[0].name()}
        print(json.dumps(answer), flush=True)


main()
