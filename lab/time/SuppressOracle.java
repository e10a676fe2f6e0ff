import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.StreamsException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.Suppressed.EagerBufferConfig;
import org.apache.kafka.streams.kstream.Suppressed.StrictBufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Kafka Streams' own suppress: each line of the input is a log and what to do with it, each line of the output
 * {"results": [[key, value, timestamp], …], "failed": number of the record at which it gave up, or -1}. Results of that
 * record are left out. Windows are part of the key: key@start@end.
 */
public final class SuppressOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            System.out.flush();
        }
    }

    private static ObjectNode answer(JsonNode asked) {
        Properties settings = new Properties();
        settings.put("application.id", "oracle");
        settings.put("bootstrap.servers", "unused:1");
        settings.put("dsl.store.suppliers.class",
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        ObjectNode found = JSON.createObjectNode().put("failed", -1);
        ArrayNode results = found.putArray("results");
        TopologyTestDriver driver = new TopologyTestDriver(topology(asked), settings, Instant.EPOCH);
        var input = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
        var output = driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer());
        int number = 0;
        try {
            for (JsonNode row : asked.get("records")) {
                input.pipeInput(row.get(0).textValue(), row.get(1).textValue(), row.get(2).longValue());
                for (TestRecord<String, String> told : output.readRecordsToList()) {
                    results.addArray().add(told.key()).add(told.value()).add(told.timestamp());
                }
                number++;
            }
        } catch (StreamsException full) {
            if (!isFull(full)) {
                throw full;
            }
            found.put("failed", number);
        }
        driver.close();
        return found;
    }

    private static boolean isFull(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (String.valueOf(each.getMessage()).contains("buffer exceeded its max capacity")) {
                return true;
            }
        }
        return false;
    }

    private static Topology topology(JsonNode asked) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> results;
        if (asked.get("window").textValue().equals("none")) {
            results = builder.table("in", Consumed.with(TEXT, TEXT), Materialized.with(TEXT, TEXT))
                .suppress(Suppressed.untilTimeLimit(limit(asked), eager(asked)))
                .toStream();
        } else {
            KTable<Windowed<String>, String> windows = windows(builder.stream("in", Consumed.with(TEXT, TEXT)), asked);
            KTable<Windowed<String>, String> held = asked.get("limit_ms").longValue() > 0
                ? windows.suppress(Suppressed.untilTimeLimit(limit(asked), eager(asked)))
                : windows.suppress(Suppressed.untilWindowCloses(strict(asked)));
            results = held.toStream(
                (key, value) -> key.key() + "@" + key.window().start() + "@" + key.window().end());
        }
        results.to("out", Produced.with(TEXT, TEXT));
        return builder.build();
    }

    private static Duration limit(JsonNode asked) {
        return Duration.ofMillis(asked.get("limit_ms").longValue());
    }

    /** What untilTimeLimit takes. */
    private static BufferConfig<?> eager(JsonNode asked) {
        long records = asked.get("max_records").longValue();
        if (records == 0) {
            return BufferConfig.unbounded();
        }
        EagerBufferConfig bounded = BufferConfig.maxRecords(records);
        return asked.get("when_full").textValue().equals("emit") ? bounded : bounded.shutDownWhenFull();
    }

    /** What untilWindowCloses takes. */
    private static StrictBufferConfig strict(JsonNode asked) {
        long records = asked.get("max_records").longValue();
        return records == 0 ? BufferConfig.unbounded() : BufferConfig.maxRecords(records).shutDownWhenFull();
    }

    private static KTable<Windowed<String>, String> windows(KStream<String, String> source, JsonNode asked) {
        Duration size = Duration.ofMillis(asked.get("size_ms").longValue());
        Duration grace = Duration.ofMillis(asked.get("grace_ms").longValue());
        KGroupedStream<String, String> grouped = source.groupByKey(Grouped.with(TEXT, TEXT));
        return switch (asked.get("window").textValue()) {
            case "tumbling" -> grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
                .aggregate(() -> "", SuppressOracle::with, kept());
            case "hopping" -> grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace).advanceBy(size.dividedBy(2)))
                .aggregate(() -> "", SuppressOracle::with, kept());
            case "sliding" -> grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace.plusMillis(1)))
                .aggregate(() -> "", SuppressOracle::with, kept());
            case "session" -> grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace))
                .aggregate(() -> "", SuppressOracle::with, (key, one, two) -> sorted(one + two), kept());
            default -> throw new IllegalArgumentException(asked.get("window").textValue());
        };
    }

    /** All values so far, in an order that does not tell in which they came. */
    private static String with(String key, String value, String all) {
        return sorted(all + value + ";");
    }

    private static String sorted(String all) {
        String[] values = all.split(";");
        java.util.Arrays.sort(values);
        return String.join(";", values) + ";";
    }

    private static <S extends StateStore> Materialized<String, String, S> kept() {
        return Materialized.<String, String, S>with(TEXT, TEXT).withRetention(Duration.ofDays(36_500));
    }
}
