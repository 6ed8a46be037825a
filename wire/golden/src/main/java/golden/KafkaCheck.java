package golden;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/**
 * Compares a message that Kafka has too, in the highest version that Kafka
 * has, with Kafka's own definition and with the class generated from it.
 */
final class KafkaCheck {
    private final String name;
    private final short version;

    private KafkaCheck(String name, short version) {
        this.name = name;
        this.version = version;
    }

    /** Returns null when kafka-clients has no such message. */
    static KafkaCheck of(MessageFile ours) throws IOException {
        try (InputStream in = KafkaCheck.class.getResourceAsStream("/common/message/" + ours.name + ".json")) {
            if (in == null) {
                return null;
            }
            MessageFile kafka = MessageFile.read(in);
            if (!kafka.fields.equals(ours.fields)) {
                throw new IllegalStateException(ours.name + " differs from Kafka's version " + kafka.version
                    + ":\nours  " + ours.fields + "\nKafka " + kafka.fields);
            }
            return new KafkaCheck(ours.name, kafka.version);
        }
    }

    /** Kafka's class must read the bytes as these values and write them again. */
    void check(byte[] bytes, ObjectNode value) throws ReflectiveOperationException {
        Class<?> data = Class.forName("org.apache.kafka.common.message." + name + "Data");
        ByteBuffer in = ByteBuffer.wrap(bytes);
        Message message = (Message) data.getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(in), version);
        if (in.hasRemaining()) {
            throw new IllegalStateException(name + ": Kafka's class left " + in.remaining() + " bytes");
        }
        JsonNode read = (JsonNode) Class.forName(data.getName() + "JsonConverter")
            .getMethod("write", data, short.class).invoke(null, message, version);
        // Numbers are compared as text: Kafka's nodes are short, int or long.
        if (!read.toString().equals(likeKafka(value).toString())) {
            throw new IllegalStateException(name + ": Kafka read\n" + read + "\nfor\n" + likeKafka(value));
        }
        ByteBuffer out = MessageUtil.toByteBufferAccessor(message, version).buffer();
        if (!Arrays.equals(bytes, MessageUtil.byteBufferToArray(out))) {
            throw new IllegalStateException(name + ": Kafka's class wrote other bytes");
        }
    }

    /** The value as Kafka's converters print it: camel case, no tags. */
    private static JsonNode likeKafka(JsonNode node) {
        if (node instanceof ArrayNode array) {
            ArrayNode out = MessageFile.JSON.createArrayNode();
            array.forEach(e -> out.add(likeKafka(e)));
            return out;
        }
        if (node instanceof ObjectNode object) {
            ObjectNode out = MessageFile.JSON.createObjectNode();
            object.properties().forEach(e -> {
                if (!e.getKey().equals(Samples.TAGS_KEY)) {
                    String key = Character.toLowerCase(e.getKey().charAt(0)) + e.getKey().substring(1);
                    out.set(key, likeKafka(e.getValue()));
                }
            });
            return out;
        }
        return node;
    }
}
