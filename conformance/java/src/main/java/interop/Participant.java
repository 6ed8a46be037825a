package interop;

import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.clients.producer.internals.TransactionManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.ProducerIdAndEpoch;

/**
 * A producer that takes part in global transactions on one cluster.
 *
 * <p>KafkaProducer 4.4.0 has KIP-939's setting, and nothing of it reaches a broker: it asks with
 * InitProducerId v5 and an ordinary timeout. Its prepareTransaction is on the TransactionManager
 * only, whose field is private (KAFKA-19414).
 */
final class Participant {
    /** How long a call may take on a machine that does many other things too. */
    static final int PATIENCE_MS = 110_000;

    private final KafkaProducer<String, String> producer;
    private final TransactionManager transactions;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    /** How the cluster is told never to end a transaction by itself. */
    enum OptIn {
        /** The longest timeout; public API only. */
        TIMEOUT,
        /** KIP-939's setting, and what the client makes of it. */
        SETTING,
        /** KIP-939's setting and the request that it stands for, InitProducerId v6. */
        REQUEST
    }

    Participant(String bootstrap, String id, OptIn optIn) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ProducerConfig.MAX_BLOCK_MS_CONFIG, PATIENCE_MS,
            ProducerConfig.TRANSACTIONAL_ID_CONFIG, id));
        if (optIn == OptIn.TIMEOUT) {
            config.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, Integer.MAX_VALUE);
        } else {
            config.put(ProducerConfig.TRANSACTION_TWO_PHASE_COMMIT_ENABLE_CONFIG, true);
        }
        producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        transactions = (TransactionManager) field(KafkaProducer.class, "transactionManager").get(producer);
        if (optIn == OptIn.REQUEST) {
            enable2Pc();
        }
        producer.initTransactions(); // waits for what enable2Pc has begun
    }

    /** Begins initTransactions and puts Enable2Pc into its request before the sender sees it. */
    private void enable2Pc() throws Exception {
        synchronized (transactions) {
            transactions.initializeTransactions(false);
            Object handler = ((Queue<?>) field(TransactionManager.class, "pendingRequests").get(transactions)).peek();
            Field builder = field(handler.getClass(), "builder");
            var data = ((InitProducerIdRequest.Builder) builder.get(handler)).data;
            builder.set(handler, new InitProducerIdRequest.Builder(data.setEnable2Pc(true)) {
                @Override
                public short latestAllowedVersion() {
                    return 6;
                }
            });
        }
    }

    private static Field field(Class<?> of, String name) throws NoSuchFieldException {
        Field field = of.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    void begin() {
        producer.beginTransaction();
    }

    void send(String topic, String value) {
        sent.add(producer.send(new ProducerRecord<>(topic, value)));
    }

    void offset(String group, String topic, long offset) {
        producer.sendOffsetsToTransaction(
            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)), new ConsumerGroupMetadata(group));
    }

    /** Flushes, throws if a record was not written, and names the transaction. */
    ProducerIdAndEpoch prepare() throws Exception {
        producer.flush();
        for (Future<RecordMetadata> record : sent) {
            record.get();
        }
        sent.clear();
        transactions.prepareTransaction();
        return transactions.preparedTransactionState();
    }

    /**
     * Adopts the end. Kafka takes the same end again for done and answers with the epoch of the
     * next transaction, which this client has no other way to learn.
     */
    void end(boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    void close() {
        producer.close(Duration.ZERO);
    }
}
