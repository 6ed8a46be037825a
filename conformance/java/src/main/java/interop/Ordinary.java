package interop;

import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's clients in ordinary use: a producer, a consumer group, transactions, an admin.
 * Commanded as {@link Main} is, with a file of client properties before each command; an error is
 * answered by its name in the protocol.
 *
 * <pre>
 *   produce TOPIC VALUE
 *   consume GROUP TOPIC             subscribed, read_committed, to the end; commits its offsets
 *   transfer ID GROUP FROM TO END   consume, produce and commit offsets in one transaction
 *   user NAME MECHANISM PASSWORD    a SCRAM credential
 *   grant PRINCIPAL TYPE PATTERN NAME OPERATION
 *   acls TYPE                       their operations
 * </pre>
 */
public final class Ordinary {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(110);

    private final Map<String, Object> config = new HashMap<>();

    private Ordinary(String file) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(file, StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
        properties.forEach((key, value) -> config.put((String) key, value));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ");
                List<String> values = new Ordinary(words[0]).obey(Arrays.copyOfRange(words, 1, words.length));
                answer = "\"ok\":true,\"values\":[" + String.join(",", values.stream().map(v -> '"' + v + '"').toList()) + "]";
            } catch (Exception e) {
                e.printStackTrace();
                answer = "\"error\":\"" + Errors.forException(cause(e)) + '"';
            }
            System.out.println("{" + answer + "}");
        }
    }

    /** The first cause that the protocol has a name for. */
    private static Throwable cause(Throwable e) {
        while (e.getCause() != null && (e instanceof ExecutionException || Errors.forException(e) == Errors.UNKNOWN_SERVER_ERROR)) {
            e = e.getCause();
        }
        return e;
    }

    private List<String> obey(String[] words) throws Exception {
        switch (words[0]) {
            case "produce":
                try (var producer = producer(Map.of())) {
                    producer.send(new ProducerRecord<>(words[1], words[2])).get();
                }
                return List.of();
            case "consume":
                try (var consumer = consumer(words[1])) {
                    List<String> values = poll(consumer, words[2]);
                    consumer.commitSync();
                    return values;
                }
            case "transfer":
                return transfer(words[1], words[2], words[3], words[4], words[5].equals("commit"));
            case "user":
                try (Admin admin = Admin.create(config)) {
                    var info = new ScramCredentialInfo(ScramMechanism.fromMechanismName(words[2]), 4096);
                    admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(words[1], info, words[3]))).all().get();
                }
                return List.of();
            case "grant":
                try (Admin admin = Admin.create(config)) {
                    var pattern = new ResourcePattern(ResourceType.fromString(words[2]), words[4], PatternType.valueOf(words[3].toUpperCase(Locale.ROOT)));
                    var entry = new AccessControlEntry(words[1], "*", AclOperation.fromString(words[5]), AclPermissionType.ALLOW);
                    admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get();
                }
                return List.of();
            case "acls":
                try (Admin admin = Admin.create(config)) {
                    return admin.describeAcls(AclBindingFilter.ANY).values().get().stream()
                        .filter(b -> b.pattern().resourceType() == ResourceType.fromString(words[1]))
                        .map(b -> b.entry().operation().name()).sorted().toList();
                }
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(config);
        all.putAll(more);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> all = new HashMap<>(config);
        all.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        all.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        all.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        all.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** What is new to the group in partition 0, up to the last stable offset. */
    private static List<String> poll(KafkaConsumer<String, String> consumer, String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.subscribe(List.of(topic));
        List<String> values = new ArrayList<>();
        for (long until = System.nanoTime() + PATIENCE_NANOS; System.nanoTime() < until; ) {
            consumer.poll(POLL).forEach(r -> values.add(r.value()));
            if (consumer.assignment().contains(partition)
                && consumer.position(partition) >= consumer.endOffsets(Set.of(partition)).get(partition)) {
                return values;
            }
        }
        throw new IllegalStateException("the group does not come to the end of " + topic);
    }

    private List<String> transfer(String id, String group, String from, String to, boolean commit) {
        try (var producer = producer(Map.of(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id)); var consumer = consumer(group)) {
            producer.initTransactions();
            List<String> values = poll(consumer, from);
            producer.beginTransaction();
            values.forEach(value -> producer.send(new ProducerRecord<>(to, value)));
            TopicPartition partition = new TopicPartition(from, 0);
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(consumer.position(partition))), consumer.groupMetadata());
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            return values;
        }
    }
}
