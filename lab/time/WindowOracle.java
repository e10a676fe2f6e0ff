import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Kafka Streams' own answers: each line of the input is a log and what to compute of it, each line of the output the
 * results in their order, [key, window start or -1, value]. TopologyTestDriver has one source partition.
 */
public final class WindowOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            System.out.flush();
        }
    }

    private static ArrayNode answer(JsonNode asked) {
        Properties settings = new Properties();
        settings.put("application.id", "oracle");
        settings.put("bootstrap.servers", "unused:1");
        settings.put("dsl.store.suppliers.class",
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        settings.put("statestore.cache.max.bytes", "0");
        ArrayNode results = JSON.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(asked), settings, Instant.EPOCH)) {
            var input = driver.createInputTopic("in", new StringSerializer(), new LongSerializer());
            for (JsonNode row : asked.get("records")) {
                String key = row.get(0).isNull() ? null : row.get(0).textValue();
                Long value = row.get(1).isNull() ? null : row.get(1).longValue();
                input.pipeInput(key, value, row.get(2).longValue());
            }
            var output = driver.createOutputTopic("out", new StringDeserializer(), new LongDeserializer());
            for (KeyValue<String, Long> found : output.readKeyValuesToList()) {
                int at = found.key.lastIndexOf('@');
                ArrayNode row = results.addArray();
                row.add(found.key.substring(0, at)).add(Long.parseLong(found.key.substring(at + 1))).add(found.value);
            }
        }
        return results;
    }

    private static Topology topology(JsonNode asked) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Long> source = builder.stream("in", Consumed.with(TEXT, LONG));
        if (asked.get("groups").longValue() > 0) { // a new key, and so a repartition topic
            long groups = asked.get("groups").longValue();
            source = source.selectKey((key, value) -> value == null ? null : "g" + Math.floorMod(value, groups));
        }
        if (asked.get("size_ms").longValue() > 0) { // its windows count a null value, and fail to reduce one
            source = source.filter((key, value) -> value != null);
        }
        KGroupedStream<String, Long> grouped = source.groupByKey(Grouped.with(TEXT, LONG));
        String operator = asked.get("operator").textValue();
        KStream<String, Long> results;
        if (asked.get("size_ms").longValue() > 0) {
            Duration size = Duration.ofMillis(asked.get("size_ms").longValue());
            Duration grace = Duration.ofMillis(asked.get("grace_ms").longValue());
            KTable<Windowed<String>, Long> table =
                windowed(grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace)), operator);
            if (asked.get("on_close").booleanValue()) {
                table = table.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
            }
            results = table.toStream((key, value) -> key.key() + "@" + key.window().start());
        } else {
            results = plain(grouped, operator).toStream((key, value) -> key + "@-1");
        }
        results.to("out", Produced.with(TEXT, LONG));
        return builder.build();
    }

    private static KTable<Windowed<String>, Long> windowed(TimeWindowedKStream<String, Long> stream, String operator) {
        return switch (operator) {
            case "count" -> stream.count();
            case "sum" -> stream.reduce(Long::sum, Materialized.with(TEXT, LONG));
            case "max" -> stream.reduce(Math::max, Materialized.with(TEXT, LONG));
            case "fold" -> stream.aggregate(() -> 7L, WindowOracle::folded, Materialized.with(TEXT, LONG));
            default -> throw new IllegalArgumentException(operator);
        };
    }

    private static KTable<String, Long> plain(KGroupedStream<String, Long> stream, String operator) {
        return switch (operator) {
            case "count" -> stream.count();
            case "sum" -> stream.reduce(Long::sum, Materialized.with(TEXT, LONG));
            case "max" -> stream.reduce(Math::max, Materialized.with(TEXT, LONG));
            case "fold" -> stream.aggregate(() -> 7L, WindowOracle::folded, Materialized.with(TEXT, LONG));
            default -> throw new IllegalArgumentException(operator);
        };
    }

    /** Not commutative, so that the order of the records shows. */
    private static long folded(String key, long value, long total) {
        return (total * 31 + value) % 1_000_003;
    }
}
