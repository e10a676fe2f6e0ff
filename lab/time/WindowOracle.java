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
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;

/**
 * Kafka Streams' own answers: each line of the input is a log and what to compute of it, each line of the output the
 * results in their order, [key, window start or -1, end of a session or -1, value]. TopologyTestDriver has one source partition.
 */
public final class WindowOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final long NOTHING = -1L;

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
        settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
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
                int end = found.key.lastIndexOf('@');
                int start = found.key.lastIndexOf('@', end - 1);
                ArrayNode row = results.addArray();
                row.add(found.key.substring(0, start)).add(Long.parseLong(found.key.substring(start + 1, end)));
                row.add(Long.parseLong(found.key.substring(end + 1))).add(found.value);
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
            results = windows(grouped, asked, operator);
        } else {
            results = plain(grouped, operator).toStream((key, value) -> key + "@-1@-1");
        }
        results.to("out", Produced.with(TEXT, LONG));
        return builder.build();
    }

    private static KStream<String, Long> windows(KGroupedStream<String, Long> grouped, JsonNode asked, String operator) {
        Duration size = Duration.ofMillis(asked.get("size_ms").longValue());
        Duration grace = Duration.ofMillis(asked.get("grace_ms").longValue());
        boolean onClose = asked.get("on_close").booleanValue();
        EmitStrategy emit = onClose ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        switch (asked.get("kind").textValue()) {
            case "session": {
                var sessions = grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace));
                return sessions(sessions.emitStrategy(emit), operator)
                    .toStream((key, value) -> key.key() + "@" + key.window().start() + "@" + key.window().end());
            }
            case "sliding": { // ours takes what is as far behind as the grace, and this what is less far behind
                var sliding = grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace.plusMillis(1)));
                return windowed(sliding.emitStrategy(emit), operator)
                    .toStream((key, value) -> key.key() + "@" + key.window().start() + "@-1");
            }
            default: {
                TimeWindows fixed = TimeWindows.ofSizeAndGrace(size, grace);
                if (asked.get("advance_ms").longValue() > 0) {
                    fixed = fixed.advanceBy(Duration.ofMillis(asked.get("advance_ms").longValue()));
                }
                KTable<Windowed<String>, Long> table = windowed(grouped.windowedBy(fixed), operator);
                if (onClose) {
                    table = table.suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
                }
                return table.toStream((key, value) -> key.key() + "@" + key.window().start() + "@-1");
            }
        }
    }

    private static KTable<Windowed<String>, Long> sessions(SessionWindowedKStream<String, Long> stream, String operator) {
        return switch (operator) {
            case "count" -> stream.count(kept());
            case "sum" -> stream.reduce(Long::sum, kept());
            case "max" -> stream.reduce(Math::max, kept());
            case "fold" -> stream.aggregate(() -> NOTHING,
                (key, value, total) -> folded(key, value, total == NOTHING ? 7L : total),
                (key, one, two) -> one == NOTHING ? two : (one * 31 + two) % 1_000_003,
                kept());
            default -> throw new IllegalArgumentException(operator);
        };
    }

    private static KTable<Windowed<String>, Long> windowed(TimeWindowedKStream<String, Long> stream, String operator) {
        return switch (operator) {
            case "count" -> stream.count(kept());
            case "sum" -> stream.reduce(Long::sum, kept());
            case "max" -> stream.reduce(Math::max, kept());
            case "fold" -> stream.aggregate(() -> 7L, WindowOracle::folded, kept());
            default -> throw new IllegalArgumentException(operator);
        };
    }

    /**
     * Results on close are read from the store after the record that closes them was written to it. Where that one is far
     * ahead, they would have been dropped by then.
     */
    private static <S extends StateStore> Materialized<String, Long, S> kept() {
        return Materialized.<String, Long, S>with(TEXT, LONG).withRetention(Duration.ofDays(36_500));
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
