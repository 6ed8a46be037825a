package golden;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import golden.MessageFile.FieldDef;
import java.util.List;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;

/**
 * Makes the values of one case from a schema alone, so that a new field gets
 * its golden bytes without anybody thinking of it. The result is JSON: fields by
 * their schema names, a uuid as Kafka prints it, and unknown tagged fields under
 * "_tags" as hex.
 */
final class Samples {
    /** The cases; README and tests name them in lower case. */
    enum Case {
        /** The schema's defaults; a nullable field without default is null. */
        DEFAULT,
        /** Ordinary distinct values, two elements in each array. */
        TYPICAL,
        /** Smallest numbers, empty strings, nulls, one element in each array. */
        MIN,
        /** Largest numbers, strings outside ASCII, nullable strings empty, one element in each array. */
        MAX,
        /** Strings and arrays whose compact lengths need two bytes. */
        LONG,
        /** TYPICAL, with unknown tagged fields in every struct. */
        TAGS
    }

    static final String TAGS_KEY = "_tags";
    /** Characters of two, three and four bytes in UTF-8. */
    private static final String UNICODE = "\u043a\u043b\u044e\u0447 \u9375 \ud83d\udd11";
    private static final int TWO_BYTE_LENGTH = 127;

    private final Case kind;
    private int counter;

    private Samples(Case kind) {
        this.kind = kind;
    }

    static ObjectNode make(Case kind, List<FieldDef> fields) {
        return new Samples(kind).struct(fields, 0);
    }

    private ObjectNode struct(List<FieldDef> fields, int depth) {
        ObjectNode out = MessageFile.JSON.createObjectNode();
        for (FieldDef f : fields) {
            if (!f.isArray()) {
                scalar(f, depth, out);
                continue;
            }
            ArrayNode array = out.putArray(f.name());
            for (int i = 0; i < arrayLength(depth); i++) {
                if (f.fields() == null) {
                    ObjectNode holder = MessageFile.JSON.createObjectNode();
                    scalar(new FieldDef(f.name(), f.elementType(), false, null, null, null), depth + 1, holder);
                    array.add(holder.get(f.name()));
                } else {
                    array.add(struct(f.fields(), depth + 1));
                }
            }
        }
        if (kind == Case.TAGS) {
            ObjectNode tags = out.putObject(TAGS_KEY);
            tags.put("7", "0102");
            tags.put("128", "");
            // The highest tag that Kafka's generated classes write again.
            tags.put(String.valueOf(Integer.MAX_VALUE - 1), "a5".repeat(130));
        }
        return out;
    }

    private int arrayLength(int depth) {
        return switch (kind) {
            case DEFAULT -> 0;
            case TYPICAL, TAGS -> 2;
            case MIN, MAX -> 1;
            case LONG -> depth == 0 ? TWO_BYTE_LENGTH : 0;
        };
    }

    private void scalar(FieldDef f, int depth, ObjectNode out) {
        counter++;
        switch (f.type()) {
            case "string" -> out.put(f.name(), string(f, depth));
            case "bool" -> out.put(f.name(), kind == Case.TYPICAL || kind == Case.TAGS || kind == Case.MAX);
            case "uuid" -> out.put(f.name(), uuid().toString());
            case "int8" -> out.put(f.name(), number(f, Byte.MIN_VALUE, Byte.MAX_VALUE));
            case "int16" -> out.put(f.name(), number(f, Short.MIN_VALUE, Short.MAX_VALUE));
            case "int32" -> out.put(f.name(), number(f, Integer.MIN_VALUE, Integer.MAX_VALUE));
            case "int64" -> out.put(f.name(), number(f, Long.MIN_VALUE, Long.MAX_VALUE));
            default -> throw new IllegalArgumentException("unsupported type " + f.type());
        }
    }

    private String string(FieldDef f, int depth) {
        return switch (kind) {
            case DEFAULT -> {
                boolean isNull = f.defaultText() == null || f.defaultText().equals("null");
                yield f.nullable() && isNull ? null : isNull ? "" : f.defaultText();
            }
            case TYPICAL, TAGS -> f.name() + "-" + counter;
            case MIN -> f.nullable() ? null : "";
            case MAX -> f.nullable() ? "" : UNICODE;
            case LONG -> depth == 0 ? "x".repeat(Math.min(TWO_BYTE_LENGTH + counter * 40, Short.MAX_VALUE)) : "x";
        };
    }

    private long number(FieldDef f, long min, long max) {
        return switch (kind) {
            case DEFAULT, LONG -> f.defaultText() == null ? 0 : Long.parseLong(f.defaultText());
            case TYPICAL, TAGS -> 3L * counter % max;
            case MIN -> min;
            case MAX -> max;
        };
    }

    private Uuid uuid() {
        return switch (kind) {
            case DEFAULT, MIN -> Uuid.ZERO_UUID;
            case TYPICAL, TAGS, LONG -> new Uuid(0x0123456789abcdefL, 0xfedcba9876543210L + counter);
            case MAX -> new Uuid(-1L, -1L);
        };
    }

    /** The tags of a struct, by number: the order that KIP-482 asks for. */
    static TreeMap<Integer, String> tags(ObjectNode struct) {
        TreeMap<Integer, String> out = new TreeMap<>();
        if (struct.has(TAGS_KEY)) {
            struct.get(TAGS_KEY).properties().forEach(e -> out.put(Integer.parseInt(e.getKey()), e.getValue().asText()));
        }
        return out;
    }
}
