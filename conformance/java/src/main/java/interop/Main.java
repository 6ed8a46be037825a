package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Apache Kafka's client, commanded by lines on stdin of words with blanks between, and
 * answering each with one line of JSON: {"ok":true,...} or {"error":"..."}.
 *
 * <pre>
 *   open NAME BOOTSTRAP ID OPTIN  a new producer; aborts what ID has open there
 *   begin NAME
 *   send NAME TOPIC VALUE         returns before the record is written
 *   offset NAME GROUP TOPIC N     of partition 0, in the transaction
 *   prepare NAME                  flushed, every record written:
 *                                 {"ok":true,"producerId":1000,"producerEpoch":0}
 *   end NAME commit|abort         adopts an end that somebody else has made
 *   read BOOTSTRAP TOPIC          read_committed, from the start: {"ok":true,"values":["a","b"]}
 * </pre>
 */
public final class Main {
    private final Map<String, Participant> participants = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Main main = new Main();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "\"ok\":true" + main.obey(line.split(" "));
            } catch (Exception e) {
                answer = "\"error\":" + quote(e + (e.getCause() == null ? "" : ": " + e.getCause()));
            }
            System.out.println("{" + answer + "}");
        }
        main.participants.values().forEach(Participant::close);
    }

    /** Returns further fields of the answer, each with a comma before it. */
    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                open(words[1], new Participant(words[2], words[3], Participant.OptIn.valueOf(words[4])));
                return "";
            case "begin":
                participants.get(words[1]).begin();
                return "";
            case "send":
                participants.get(words[1]).send(words[2], words[3]);
                return "";
            case "offset":
                participants.get(words[1]).offset(words[2], words[3], Long.parseLong(words[4]));
                return "";
            case "prepare":
                var state = participants.get(words[1]).prepare();
                return ",\"producerId\":" + state.producerId + ",\"producerEpoch\":" + state.epoch;
            case "end":
                participants.get(words[1]).end(words[2].equals("commit"));
                return "";
            case "read":
                var values = new Committed(words[1], words[2]).read();
                return ",\"values\":[" + String.join(",", values.stream().map(Main::quote).toList()) + "]";
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private void open(String name, Participant participant) {
        Participant old = participants.put(name, participant);
        if (old != null) {
            old.close();
        }
    }

    private static String quote(String s) {
        return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", "\\t") + '"';
    }
}
