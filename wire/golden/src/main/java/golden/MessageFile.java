package golden;

import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Field.TaggedFieldsSection;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Type;

/**
 * One version of a message definition in Kafka's JSON format, as the schema
 * that Kafka's own protocol types encode. Only what the definitions of this
 * project use is supported; anything else is an error, never a guess.
 */
final class MessageFile {
    static final JsonMapper JSON = JsonMapper.builder().enable(JsonReadFeature.ALLOW_JAVA_COMMENTS).build();

    /** A field of a struct; fields is null unless it is an array of structs, tag unless it is a tagged field. */
    record FieldDef(String name, String type, boolean nullable, String defaultText, Integer tag, List<FieldDef> fields) {
        boolean isArray() {
            return type.startsWith("[]");
        }

        String elementType() {
            return type.substring(2);
        }
    }

    final String name;
    final short version;
    final List<FieldDef> fields;
    final Schema schema;
    private final Map<String, JsonNode> commonStructs = new HashMap<>();

    /** Reads the definition's highest valid version. */
    static MessageFile read(InputStream in) throws IOException {
        JsonNode root = JSON.readTree(in);
        String valid = root.get("validVersions").asText();
        return new MessageFile(root, Short.parseShort(valid.substring(valid.indexOf('-') + 1)));
    }

    private MessageFile(JsonNode root, short version) {
        this.name = root.get("name").asText();
        this.version = version;
        if (!contains(root.get("flexibleVersions").asText(), version)) {
            throw new IllegalArgumentException(name + " is not flexible in version " + version);
        }
        if (root.has("commonStructs")) {
            root.get("commonStructs").forEach(n -> commonStructs.put(n.get("name").asText(), n.get("fields")));
        }
        this.fields = fields(root.get("fields"), version);
        this.schema = schema(fields);
    }

    private List<FieldDef> fields(JsonNode nodes, short version) {
        List<FieldDef> out = new ArrayList<>();
        for (JsonNode n : nodes) {
            if (!contains(n.get("versions").asText(), version)) {
                continue;
            }
            for (Iterator<String> keys = n.fieldNames(); keys.hasNext(); ) {
                switch (keys.next()) {
                    case "name", "type", "versions", "nullableVersions", "default", "ignorable", "entityType", "about", "fields", "tag", "taggedVersions":
                        break;
                    default:
                        throw new IllegalArgumentException("unsupported property in " + n);
                }
            }
            JsonNode nullable = n.get("nullableVersions");
            JsonNode inner = n.has("fields") ? n.get("fields") : commonStructs.get(n.get("type").asText().replace("[]", ""));
            boolean tagged = n.has("tag") && contains(n.get("taggedVersions").asText(), version);
            out.add(new FieldDef(
                n.get("name").asText(),
                n.get("type").asText(),
                nullable != null && contains(nullable.asText(), version),
                n.has("default") ? n.get("default").asText() : null,
                tagged ? n.get("tag").asInt() : null,
                inner == null ? null : fields(inner, version)));
        }
        return out;
    }

    /** Whether a version range such as "3", "0-3" or "2+" has the version. */
    private static boolean contains(String range, short version) {
        if (range.endsWith("+")) {
            return Short.parseShort(range.substring(0, range.length() - 1)) <= version;
        }
        int dash = range.indexOf('-');
        if (dash < 0) {
            return Short.parseShort(range) == version;
        }
        return Short.parseShort(range.substring(0, dash)) <= version
            && version <= Short.parseShort(range.substring(dash + 1));
    }

    private static Schema schema(List<FieldDef> fields) {
        List<Field> out = new ArrayList<>();
        List<Object> tagged = new ArrayList<>();
        for (FieldDef f : fields) {
            Field field = new Field(f.name(), type(f));
            if (f.tag() == null) {
                out.add(field);
            } else {
                tagged.add(f.tag());
                tagged.add(field);
            }
        }
        out.add(TaggedFieldsSection.of(tagged.toArray()));
        return new Schema(out.toArray(new Field[0]));
    }

    private static Type type(FieldDef f) {
        if (f.isArray()) {
            Type element = f.fields() == null ? primitive(f.elementType(), false) : schema(f.fields());
            return f.nullable() ? CompactArrayOf.nullable(element) : new CompactArrayOf(element);
        }
        return primitive(f.type(), f.nullable());
    }

    private static Type primitive(String type, boolean nullable) {
        if (type.equals("string")) {
            return nullable ? Type.COMPACT_NULLABLE_STRING : Type.COMPACT_STRING;
        }
        if (nullable) {
            throw new IllegalArgumentException(type + " cannot be nullable");
        }
        return switch (type) {
            case "bool" -> Type.BOOLEAN;
            case "int8" -> Type.INT8;
            case "int16" -> Type.INT16;
            case "int32" -> Type.INT32;
            case "int64" -> Type.INT64;
            case "uuid" -> Type.UUID;
            default -> throw new IllegalArgumentException("unsupported type " + type);
        };
    }
}
