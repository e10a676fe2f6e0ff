import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The same work by Kafka Streams, or by Java's consumer. The argument is a workload as JSON, the last line of the output
 * what was measured. Kafka Streams counts in RocksDB with its cache on, as it does by default, with larger polls, fetches,
 * batches and cache than by default, and compression.
 */
public final class StreamsPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<Bytes> BYTES = Serdes.Bytes();
    private static final Serde<byte[]> VALUE = Serdes.ByteArray();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final LongAdder PROCESSED = new LongAdder();

    private static long begunNs;
    private static long begunCpuNs;

    public static void main(String[] arguments) throws Exception {
        JsonNode load = JSON.readTree(arguments[0]);
        switch (load.get("work").textValue()) {
            case "read" -> read(load);
            case "restore" -> restore(load);
            case "latency" -> serve(load);
            default -> process(load);
        }
    }

    private static void process(JsonNode load) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        int numberAt = load.get("number_at").intValue();
        KStream<Bytes, byte[]> source = builder.stream(load.get("topic").textValue(), Consumed.with(BYTES, VALUE));
        String work = load.get("work").textValue();
        if (work.equals("rekey")) {
            source = source.selectKey((key, value) -> Bytes.wrap(Arrays.copyOf(value, numberAt)));
            source = source.repartition(Repartitioned
                .with(BYTES, VALUE).withNumberOfPartitions(load.get("partitions").intValue()));
        }
        var grouped = source.peek((key, value) -> PROCESSED.increment()).groupByKey(Grouped.with(BYTES, VALUE));
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
        } else {
            grouped.count(Materialized.<Bytes, Long, KeyValueStore<Bytes, byte[]>>as("state")
                .withKeySerde(BYTES).withValueSerde(LONG));
        }
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings(load))) {
            streams.start();
            waitFor(load.get("warm_records").longValue());
            begin();
            waitFor(load.get("records").longValue());
            awaitCommitted(load);
            Took took = took();
            long timed = load.get("records").longValue() - load.get("warm_records").longValue();
            tell(timed, took, work.equals("window") ? windows(streams) : totals(streams));
        }
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
                    if (begunNs == 0) {
                        begin();
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
            Took took = took();
            while (streams.state() != KafkaStreams.State.RUNNING) {
                Thread.sleep(5);
            }
            Digest store = new Digest();
            try (KeyValueIterator<Bytes, byte[]> rows = StreamsPeer.<byte[]>keyed(streams).all()) {
                while (rows.hasNext()) {
                    KeyValue<Bytes, byte[]> row = rows.next();
                    store.add(row.key.get(), row.value);
                }
            }
            tell(restored.get(), took, store.text());
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
        settings.put("num.stream.threads", load.get("threads").intValue());
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        settings.put("auto.offset.reset", "earliest");
        settings.put("producer.linger.ms", "0");
        if (!load.get("commit_seconds").isNull()) {
            settings.put("commit.interval.ms", (long) (load.get("commit_seconds").doubleValue() * 1000));
        }
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            System.in.readAllBytes();
        }
    }

    private static void read(JsonNode load) throws Exception {
        Properties settings = new Properties();
        consuming(settings, load, "");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < load.get("partitions").intValue(); number++) {
            partitions.add(new TopicPartition(load.get("topic").textValue(), number));
        }
        long records = load.get("records").longValue();
        long[] seen = {0, 0};
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            for (int pass = 0; pass < 2; pass++) { // the first warms up
                consumer.seekToBeginning(partitions);
                Arrays.fill(seen, 0);
                begin();
                while (seen[0] < records) {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                        seen[0]++;
                        seen[1] += record.key().length + record.value().length;
                    });
                }
                if (pass == 1) {
                    tell(records, took(), seen[0] + ":" + Long.toHexString(seen[1]));
                }
            }
        }
    }

    private static Properties settings(JsonNode load) throws Exception {
        Properties settings = new Properties();
        settings.put("application.id", load.get("app").textValue());
        settings.put("state.dir", load.get("state_dir").textValue());
        settings.put("num.stream.threads", load.get("threads").intValue());
        settings.put("commit.interval.ms", (long) (load.get("commit_seconds").doubleValue() * 1000));
        settings.put("processing.guarantee",
            load.get("guarantee").textValue().equals("exactly-once") ? "exactly_once_v2" : "at_least_once");
        settings.put("statestore.cache.max.bytes", 128L << 20);
        settings.put("auto.offset.reset", "earliest");
        settings.put("metrics.recording.level", "INFO");
        consuming(settings, load, "consumer.");
        settings.put("producer.linger.ms", "100");
        settings.put("producer.batch.size", Integer.toString(512 << 10));
        settings.put("producer.buffer.memory", Long.toString(128L << 20));
        settings.put("producer.compression.type", "lz4");
        return settings;
    }

    private static void consuming(Properties settings, JsonNode load, String prefix) {
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        settings.put(prefix + "max.poll.records", "20000");
        settings.put(prefix + "max.partition.fetch.bytes", Integer.toString(8 << 20));
        settings.put(prefix + "fetch.max.bytes", Integer.toString(64 << 20));
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
            while (committed < load.get("records").longValue()) {
                Thread.sleep(20);
                committed = 0;
                var offsets = admin.listConsumerGroupOffsets(load.get("app").textValue())
                    .partitionsToOffsetAndMetadata().get();
                for (var entry : offsets.entrySet()) {
                    OffsetAndMetadata offset = entry.getValue();
                    if (offset != null && entry.getKey().topic().equals(load.get("topic").textValue())) {
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

    private static String totals(KafkaStreams streams) {
        Digest found = new Digest();
        try (KeyValueIterator<Bytes, Long> rows = StreamsPeer.<Long>keyed(streams).all()) {
            while (rows.hasNext()) {
                KeyValue<Bytes, Long> row = rows.next();
                found.add(row.key.get(), ByteBuffer.allocate(8).putLong(row.value).array());
            }
        }
        return found.text();
    }

    private static String windows(KafkaStreams streams) {
        Digest found = new Digest();
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

    private static void begin() {
        begunCpuNs = SYSTEM.getProcessCpuTime();
        begunNs = System.nanoTime();
    }

    private static Took took() {
        return new Took((System.nanoTime() - begunNs) / 1e9, (SYSTEM.getProcessCpuTime() - begunCpuNs) / 1e9);
    }

    private static void tell(long records, Took took, String digest) throws Exception {
        var told = JSON.createObjectNode();
        told.put("records", records).put("seconds", took.seconds()).put("cpu_seconds", took.cpuSeconds());
        told.put("digest", digest).put("rss_bytes_max", rssBytesMax());
        System.out.println(JSON.writeValueAsString(told));
        System.out.flush();
    }

    private static long rssBytesMax() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"), StandardCharsets.UTF_8)) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
            }
        }
        return 0;
    }

    private record Took(double seconds, double cpuSeconds) { }

    /** Order does not matter: how many, and the sum of their CRCs. */
    private static final class Digest {
        private long count;
        private long total;

        void add(byte[] key, byte[] value) {
            CRC32 crc = new CRC32();
            crc.update(key);
            crc.update(value);
            count++;
            total += crc.getValue();
        }

        String text() {
            return count + ":" + Long.toHexString(total);
        }
    }
}
