import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The same work by Kafka Streams, or by Java's clients. The argument is a workload as JSON, the last line of the output
 * what was measured. Kafka Streams keeps state in RocksDB with its cache on; its settings are in the workload.
 */
public final class StreamsPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<Bytes> BYTES = Serdes.Bytes();
    private static final Serde<byte[]> VALUE = Serdes.ByteArray();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final LongAdder PROCESSED = new LongAdder();
    /** Records that a first stage has sent to a second one, and those that this has got. */
    static final LongAdder SENT_ON = new LongAdder();
    static final LongAdder CONSUMED = new LongAdder();

    public static void main(String[] arguments) throws Exception {
        JsonNode load = JSON.readTree(arguments[0]);
        switch (load.get("work").textValue()) {
            case "read" -> Clients.read(load);
            case "write" -> Clients.write(load);
            case "restore", "image" -> restore(load);
            case "latency" -> serve(load);
            default -> process(load);
        }
    }

    private static void build(StreamsBuilder builder, JsonNode load) {
        int numberAt = load.get("number_at").intValue();
        KStream<Bytes, byte[]> source = builder.stream(load.get("topic").textValue(), Consumed.with(BYTES, VALUE));
        String work = load.get("work").textValue();
        if (work.equals("join")) {
            source = pairs(builder, source, load);
        } else { // of a join the inputs are counted, not the pairs
            source = source.peek((key, value) -> PROCESSED.increment());
        }
        if (work.equals("rekey")) {
            source = source.peek((key, value) -> SENT_ON.increment());
            source = source.selectKey((key, value) -> Bytes.wrap(Arrays.copyOf(value, numberAt)));
            source = source.repartition(Repartitioned
                .with(BYTES, VALUE).withNumberOfPartitions(load.get("partitions").intValue()));
            source = source.peek((key, value) -> CONSUMED.increment());
        }
        if (work.equals("shuffle")) {
            Shuffle.build(source, load);
            return;
        }
        var grouped = source.groupByKey(Grouped.with(BYTES, VALUE));
        if (work.equals("window")) {
            grouped.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1))).aggregate(
                () -> 0L,
                (key, value, total) -> total + ByteBuffer.wrap(value).getLong(numberAt),
                Materialized.<Bytes, Long, WindowStore<Bytes, byte[]>>as("state")
                    .withKeySerde(BYTES).withValueSerde(LONG).withRetention(Duration.ofDays(36_500)));
        } else if (work.equals("operator")) {
            grouped.aggregate(
                () -> 0L,
                (key, value, total) -> total + ByteBuffer.wrap(value).getLong(numberAt),
                Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("state")
                    .withKeySerde(BYTES).withValueSerde(LONG));
        } else if (work.equals("newest")) {
            grouped.reduce((one, two) -> two, Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("state")
                .withKeySerde(BYTES).withValueSerde(VALUE));
        } else {
            grouped.count(Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("state")
                .withKeySerde(BYTES).withValueSerde(LONG));
        }
    }

    private static void process(JsonNode load) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, load);
        String work = load.get("work").textValue();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(load))) {
            streams.start();
            waitFor(load.get("warm_records").longValue());
            Measured.begin();
            waitFor(load.get("all_records").longValue());
            while (CONSUMED.sum() < SENT_ON.sum()) {
                Thread.sleep(5);
            }
            awaitCommitted(load);
            Measured.Took took = Measured.took();
            long timed = load.get("all_records").longValue() - load.get("warm_records").longValue();
            String digest = switch (work) {
                case "window" -> windows(streams);
                case "newest", "shuffle" -> values(streams);
                default -> totals(streams);
            };
            Measured.tell(timed, took, digest);
        }
    }

    private static KStream<Bytes, byte[]> pairs(StreamsBuilder builder, KStream<Bytes, byte[]> left, JsonNode load) {
        KStream<Bytes, byte[]> right =
            builder.stream(load.get("inputs").get(1).textValue(), Consumed.with(BYTES, VALUE));
        JoinWindows within = JoinWindows.ofTimeDifferenceAndGrace(
            Duration.ofMillis(load.get("join_within_ms").longValue()),
            Duration.ofMillis(load.get("join_grace_ms").longValue()));
        return left.peek((key, value) -> PROCESSED.increment()).join(
            right.peek((key, value) -> PROCESSED.increment()),
            (one, other) -> other, within, StreamJoined.with(BYTES, VALUE, VALUE));
    }

    /** The store's changelog is there; its source topic is empty. From the first partition's begin to the last one's end. */
    private static void restore(JsonNode load) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(load.get("empty_topic").textValue(), Consumed.with(BYTES, VALUE))
            .groupByKey(Grouped.with(BYTES, VALUE))
            .reduce((one, two) -> two, Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("state")
                .withKeySerde(BYTES).withValueSerde(VALUE));
        AtomicInteger ended = new AtomicInteger();
        AtomicLong restored = new AtomicLong();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(load))) {
            streams.setGlobalStateRestoreListener(new StateRestoreListener() {
                @Override
                public synchronized void onRestoreStart(TopicPartition partition, String store, long first, long end) {
                    if (!Measured.isRunning()) {
                        Measured.begin();
                    }
                }

                @Override
                public void onBatchRestored(TopicPartition partition, String store, long end, long records) { }

                @Override
                public void onRestoreEnd(TopicPartition partition, String store, long records) {
                    restored.addAndGet(records);
                    ended.incrementAndGet();
                }
            });
            streams.start();
            while (ended.get() < load.get("partitions").intValue()) {
                Thread.sleep(5);
            }
            Measured.Took took = Measured.took();
            while (streams.state() != KafkaStreams.State.RUNNING) {
                Thread.sleep(5);
            }
            Measured.tell(restored.get(), took, values(streams));
        }
    }

    /** The newest value of each key, to an output topic, until standard input ends. */
    private static void serve(JsonNode load) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        String app = load.get("app").textValue();
        KStream<Bytes, byte[]> source = builder.stream(app + "-in", Consumed.with(BYTES, VALUE));
        if (load.get("rekeyed").booleanValue()) {
            int keyBytes = load.get("key_bytes").intValue();
            source = source.selectKey((key, value) -> Bytes.wrap(Arrays.copyOf(value, keyBytes)));
            source = source.repartition(Repartitioned
                .with(BYTES, VALUE).withNumberOfPartitions(load.get("partitions").intValue()));
        }
        source.groupByKey(Grouped.with(BYTES, VALUE))
            .reduce((one, two) -> two, Materialized.<Bytes, byte[], KeyValueStore<Bytes, byte[]>>as("newest")
                .withKeySerde(BYTES).withValueSerde(VALUE))
            .toStream().to(app + "-out", Produced.with(BYTES, VALUE));
        Properties settings = new Properties();
        settings.put("application.id", app);
        settings.put("state.dir", load.get("state_dir").textValue());
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        Clients.given(settings, load.get("settings"), "");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            System.in.readAllBytes();
        }
    }

    private static Properties settings(JsonNode load) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", load.get("app").textValue());
        settings.put("state.dir", load.get("state_dir").textValue());
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        Clients.given(settings, load.get("settings").get("streams"), "");
        Clients.given(settings, load.get("settings").get("consumer"), "consumer.");
        Clients.given(settings, load.get("settings").get("producer"), "producer.");
        return settings;
    }

    private static void waitFor(long records) throws InterruptedException {
        while (PROCESSED.sum() < records) {
            Thread.sleep(5);
        }
    }

    /** Until the group's offsets say that the whole input is processed. Transactions' markers take offsets, too. */
    private static void awaitCommitted(JsonNode load) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        try (Admin admin = Admin.create(settings)) {
            long committed = -1;
            Set<String> inputs = new HashSet<>();
            load.get("inputs").forEach(topic -> inputs.add(topic.textValue()));
            while (committed < load.get("all_records").longValue()) {
                Thread.sleep(20);
                committed = 0;
                var offsets = admin.listConsumerGroupOffsets(load.get("app").textValue())
                    .partitionsToOffsetAndMetadata().get();
                for (var entry : offsets.entrySet()) {
                    OffsetAndMetadata offset = entry.getValue();
                    if (offset != null && inputs.contains(entry.getKey().topic())) {
                        committed += offset.offset();
                    }
                }
            }
        }
    }

    private static <V> ReadOnlyKeyValueStore<Bytes, V> keyed(KafkaStreams streams) {
        return streams.store(StoreQueryParameters.fromNameAndType(
            "state", QueryableStoreTypes.<Bytes, V>keyValueStore()));
    }

    private static String values(KafkaStreams streams) {
        Measured.Digest found = new Measured.Digest();
        try (KeyValueIterator<Bytes, byte[]> rows = StreamsPeer.<byte[]>keyed(streams).all()) {
            while (rows.hasNext()) {
                KeyValue<Bytes, byte[]> row = rows.next();
                found.add(row.key.get(), row.value);
            }
        }
        return found.text();
    }

    private static String totals(KafkaStreams streams) {
        Measured.Digest found = new Measured.Digest();
        try (KeyValueIterator<Bytes, Long> rows = StreamsPeer.<Long>keyed(streams).all()) {
            while (rows.hasNext()) {
                KeyValue<Bytes, Long> row = rows.next();
                found.add(row.key.get(), ByteBuffer.allocate(8).putLong(row.value).array());
            }
        }
        return found.text();
    }

    private static String windows(KafkaStreams streams) {
        Measured.Digest found = new Measured.Digest();
        var store = streams.store(StoreQueryParameters.fromNameAndType(
            "state", QueryableStoreTypes.<Bytes, Long>windowStore()));
        try (var rows = store.all()) {
            while (rows.hasNext()) {
                var row = rows.next();
                byte[] key = row.key.key().get();
                byte[] place = ByteBuffer.allocate(key.length + 12).put(key)
                    .putLong(row.key.window().start()).putInt(0).array();
                found.add(place, ByteBuffer.allocate(8).putLong(row.value).array());
            }
        }
        return found.text();
    }
}
