import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Reading and writing by Java's clients. */
final class Clients {
    private Clients() { }

    static void read(JsonNode load) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        given(settings, load.get("settings").get("consumer"), "");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        List<TopicPartition> partitions = partitions(load);
        long records = load.get("records").longValue();
        long[] seen = {0, 0};
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            for (int pass = 0; pass < 2; pass++) { // the first warms up
                consumer.seekToBeginning(partitions);
                Arrays.fill(seen, 0);
                Measured.begin();
                while (seen[0] < records) {
                    consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                        seen[0]++;
                        seen[1] += record.key().length + record.value().length;
                    });
                }
                if (pass == 1) {
                    Measured.tell(records, Measured.took(), seen[0] + ":" + Long.toHexString(seen[1]));
                }
            }
        }
    }

    /** The input, read into memory before, to another topic; the study reads afterwards what is there. */
    static void write(JsonNode load) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> input = new ArrayList<>();
        Properties reading = new Properties();
        reading.put("bootstrap.servers", load.get("brokers").textValue());
        given(reading, load.get("settings").get("consumer"), "");
        reading.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = partitions(load);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (input.size() < load.get("records").intValue()) {
                consumer.poll(Duration.ofMillis(100)).forEach(input::add);
            }
        }
        boolean exactlyOnce = load.get("guarantee").textValue().equals("exactly-once");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", load.get("brokers").textValue());
        given(settings, load.get("settings").get("producer"), "");
        if (exactlyOnce) {
            settings.put("transactional.id", load.get("app").textValue());
        }
        int warm = load.get("warm_records").intValue();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (exactlyOnce) {
                producer.initTransactions();
            }
            send(producer, load, input.subList(0, warm), exactlyOnce);
            Measured.begin();
            send(producer, load, input.subList(warm, input.size()), exactlyOnce);
            Measured.tell(input.size() - warm, Measured.took(), "");
        }
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, JsonNode load, List<ConsumerRecord<byte[], byte[]>> records,
            boolean exactlyOnce) {
        String topic = load.get("app").textValue() + "-output";
        long interval = (long) (load.get("commit_seconds").doubleValue() * 1e9);
        AtomicReference<Exception> failure = new AtomicReference<>();
        Callback noted = (metadata, error) -> {
            if (error != null) {
                failure.set(error);
            }
        };
        long since = System.nanoTime();
        if (exactlyOnce) {
            producer.beginTransaction();
        }
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(topic, record.key(), record.value()), noted);
            if (exactlyOnce && System.nanoTime() - since > interval) {
                producer.commitTransaction();
                producer.beginTransaction();
                since = System.nanoTime();
            }
        }
        if (exactlyOnce) {
            producer.commitTransaction();
        } else {
            producer.flush();
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private static List<TopicPartition> partitions(JsonNode load) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < load.get("partitions").intValue(); number++) {
            partitions.add(new TopicPartition(load.get("topic").textValue(), number));
        }
        return partitions;
    }

    /** What the workload says of a client. */
    static void given(Properties settings, JsonNode named, String prefix) {
        named.properties().forEach(each -> settings.put(prefix + each.getKey(), each.getValue().asText()));
    }
}
