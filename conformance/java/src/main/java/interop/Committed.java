package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What a read_committed consumer sees of partition 0 of a topic. */
record Committed(String bootstrap, String topic) {
    /** How long a consumer that has come to the end is watched for what it must not see. */
    private static final Duration LONGER = Duration.ofMillis(300);

    List<String> read() {
        List<String> values = new ArrayList<>();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = new KafkaConsumer<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, Participant.PATIENCE_MS,
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"),
            new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            // With this isolation the end is the last stable offset.
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(r -> values.add(r.value()));
            }
            for (long until = System.nanoTime() + LONGER.toNanos(); System.nanoTime() < until; ) {
                consumer.poll(Duration.ofMillis(50)).forEach(r -> values.add(r.value()));
            }
        }
        return values;
    }
}
