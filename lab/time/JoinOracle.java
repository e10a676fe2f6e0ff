import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Kafka Streams' own joins and table aggregates: each line of the input is a log and what to do with it, each line of
 * the output the results in their order, [key, value, timestamp]. Records are [topic, key, value, timestamp].
 */
public final class JoinOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final ValueJoiner<String, String, String> PAIR = (left, right) -> left + "+" + right;

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
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", "0");
        ArrayNode results = JSON.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(asked), settings, Instant.EPOCH)) {
            Map<String, TestInputTopic<String, String>> inputs = new HashMap<>();
            for (JsonNode row : asked.get("records")) {
                inputs.computeIfAbsent(row.get(0).textValue(),
                        topic -> driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()))
                    .pipeInput(row.get(1).textValue(), row.get(2).textValue(), row.get(3).longValue());
            }
            var output = driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer());
            for (TestRecord<String, String> found : output.readRecordsToList()) {
                results.addArray().add(found.key()).add(found.value()).add(found.timestamp());
            }
        }
        return results;
    }

    private static Topology topology(JsonNode asked) {
        StreamsBuilder builder = new StreamsBuilder();
        String how = asked.get("how").textValue();
        KStream<String, String> results = switch (asked.get("sides").textValue()) {
            case "stream-stream" -> streams(builder, how, asked);
            case "stream-to-table" -> streamAndItsTable(builder, how);
            case "stream-table" -> streamAndTable(builder, how);
            case "table-table" -> tables(builder, how).toStream();
            case "foreign" -> foreign(builder, how).toStream();
            case "aggregate" -> aggregate(builder).toStream();
            default -> throw new IllegalArgumentException(how);
        };
        results.to("out", Produced.with(TEXT, TEXT));
        return builder.build();
    }

    /** Both sides in one topic, so that stream time is a function of it. */
    private static KStream<String, String> streams(StreamsBuilder builder, String how, JsonNode asked) {
        KStream<String, String> source = builder.stream("in", Consumed.with(TEXT, TEXT));
        KStream<String, String> left = source.filter((key, value) -> value != null && value.startsWith("l"));
        KStream<String, String> right = source.filter((key, value) -> value != null && value.startsWith("r"));
        JoinWindows within = JoinWindows
            .ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofMillis(asked.get("grace_ms").longValue()))
            .before(Duration.ofMillis(asked.get("before_ms").longValue()))
            .after(Duration.ofMillis(asked.get("after_ms").longValue()));
        StreamJoined<String, String, String> as = StreamJoined.with(TEXT, TEXT, TEXT);
        return switch (how) {
            case "inner" -> left.join(right, PAIR, within, as);
            case "left" -> left.leftJoin(right, PAIR, within, as);
            case "outer" -> left.outerJoin(right, PAIR, within, as);
            default -> throw new IllegalArgumentException(how);
        };
    }

    /** A stream with what another part of the same topic says last. */
    private static KStream<String, String> streamAndItsTable(StreamsBuilder builder, String how) {
        KStream<String, String> source = builder.stream("in", Consumed.with(TEXT, TEXT));
        KStream<String, String> left = source.filter((key, value) -> value != null && value.startsWith("l"));
        KTable<String, String> right = source.filter((key, value) -> value != null && value.startsWith("r"))
            .toTable(Materialized.with(TEXT, TEXT));
        return how.equals("inner") ? left.join(right, PAIR) : left.leftJoin(right, PAIR);
    }

    private static KStream<String, String> streamAndTable(StreamsBuilder builder, String how) {
        KStream<String, String> left = builder.stream("left", Consumed.with(TEXT, TEXT));
        KTable<String, String> right = builder.table("right", Consumed.with(TEXT, TEXT));
        return how.equals("inner") ? left.join(right, PAIR) : left.leftJoin(right, PAIR);
    }

    private static KTable<String, String> tables(StreamsBuilder builder, String how) {
        KTable<String, String> left = builder.table("left", Consumed.with(TEXT, TEXT));
        KTable<String, String> right = builder.table("right", Consumed.with(TEXT, TEXT));
        return switch (how) {
            case "inner" -> left.join(right, PAIR);
            case "left" -> left.leftJoin(right, PAIR);
            case "outer" -> left.outerJoin(right, PAIR);
            default -> throw new IllegalArgumentException(how);
        };
    }

    /** What stands before the dot of a left value is the key of the right one. */
    private static KTable<String, String> foreign(StreamsBuilder builder, String how) {
        KTable<String, String> left = builder.table("left", Consumed.with(TEXT, TEXT));
        KTable<String, String> right = builder.table("right", Consumed.with(TEXT, TEXT));
        return how.equals("inner")
            ? left.join(right, JoinOracle::group, PAIR, Materialized.with(TEXT, TEXT))
            : left.leftJoin(right, JoinOracle::group, PAIR, Materialized.with(TEXT, TEXT));
    }

    /** The values of each group in the order in which they came into it. */
    private static KTable<String, String> aggregate(StreamsBuilder builder) {
        return builder.table("left", Consumed.with(TEXT, TEXT))
            .groupBy((key, value) -> KeyValue.pair(group(value), value), Grouped.with(TEXT, TEXT))
            .aggregate(() -> "",
                (key, value, all) -> all + value + ";",
                (key, value, all) -> all.replaceFirst(java.util.regex.Pattern.quote(value + ";"), ""),
                Materialized.with(TEXT, TEXT));
    }

    private static String group(String value) {
        return value.substring(0, value.indexOf('.'));
    }
}
