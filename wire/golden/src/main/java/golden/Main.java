package golden;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import golden.MessageFile.FieldDef;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;

/**
 * Writes golden bytes of every message definition in a directory, encoded by
 * Kafka's protocol types: golden.Main SCHEMA_DIRECTORY OUTPUT_DIRECTORY.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[1]);
        Files.createDirectories(out);
        List<Path> definitions;
        try (Stream<Path> files = Files.list(Path.of(args[0]))) {
            // The keys of records are not flexible.
            definitions = files.filter(f -> f.toString().endsWith(".json") && !f.toString().endsWith("Key.json")).sorted().toList();
        }
        for (Path definition : definitions) {
            Files.writeString(out.resolve(definition.getFileName()), golden(definition));
        }
    }

    /** One case a line, so that a change shows as one line of a diff. */
    private static String golden(Path definition) throws IOException, ReflectiveOperationException {
        MessageFile message;
        try (InputStream in = Files.newInputStream(definition)) {
            message = MessageFile.read(in);
        }
        KafkaCheck kafka = KafkaCheck.of(message);
        List<String> lines = new ArrayList<>();
        for (Samples.Case kind : Samples.Case.values()) {
            ObjectNode value = Samples.make(kind, message.fields);
            byte[] bytes = encode(struct(message.schema, message.fields, value));
            if (kafka != null) {
                kafka.check(bytes, value);
            }
            ObjectNode line = MessageFile.JSON.createObjectNode();
            line.put("case", kind.name().toLowerCase(Locale.ROOT));
            line.put("version", message.version);
            line.put("hex", HexFormat.of().formatHex(bytes));
            line.set("value", value);
            lines.add(line.toString());
        }
        return "[\n" + String.join(",\n", lines) + "\n]\n";
    }

    private static byte[] encode(Struct struct) {
        struct.validate();
        byte[] bytes = write(struct);
        // Struct.equals does not look into the array of a tagged field.
        if (!Arrays.equals(bytes, write(struct.schema().read(ByteBuffer.wrap(bytes))))) {
            throw new IllegalStateException("Kafka's schema does not read what it wrote: " + struct);
        }
        return bytes;
    }

    private static byte[] write(Struct struct) {
        ByteBuffer buffer = ByteBuffer.allocate(struct.sizeOf());
        struct.writeTo(buffer);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("wrote less than sizeOf");
        }
        return buffer.array();
    }

    private static Struct struct(Schema schema, List<FieldDef> fields, ObjectNode value) {
        Struct struct = new Struct(schema);
        NavigableMap<Integer, Object> tags = new TreeMap<>();
        for (FieldDef f : fields) {
            JsonNode node = value.get(f.name());
            if (!f.isArray()) {
                if (f.tag() != null) {
                    throw new IllegalArgumentException("a tagged field that is no array is not supported: " + f.name());
                }
                struct.set(f.name(), scalar(f.type(), node));
                continue;
            }
            Object[] array = new Object[node.size()];
            for (int i = 0; i < array.length; i++) {
                array[i] = f.fields() == null
                    ? scalar(f.elementType(), node.get(i))
                    : struct((Schema) schema.get(f.name()).def.type.arrayElementType().get(), f.fields(), (ObjectNode) node.get(i));
            }
            if (f.tag() == null) {
                struct.set(f.name(), array);
            } else if (array.length > 0) { // as the generated classes do: the default is left out
                tags.put(f.tag(), array);
            }
        }
        Samples.tags(value).forEach((tag, hex) -> tags.put(tag, new RawTaggedField(tag, HexFormat.of().parseHex(hex))));
        struct.set(Field.TaggedFieldsSection.of().name, tags);
        return struct;
    }

    private static Object scalar(String type, JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        return switch (type) {
            case "string" -> node.textValue();
            case "bool" -> node.booleanValue();
            case "uuid" -> Uuid.fromString(node.textValue());
            case "int8" -> (byte) node.longValue();
            case "int16" -> (short) node.longValue();
            case "int32" -> (int) node.longValue();
            case "int64" -> node.longValue();
            default -> throw new IllegalArgumentException("unsupported type " + type);
        };
    }
}
