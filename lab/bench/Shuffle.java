import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** ShuffleBench by Kafka Streams; what rules and states are is said in {@code shuffling.py}. */
final class Shuffle {
    private static final Serde<Bytes> BYTES = Serdes.Bytes();
    private static final Serde<byte[]> VALUE = Serdes.ByteArray();
    private static final int STATE_BYTES = 32;

    private Shuffle() { }

    static void build(KStream<Bytes, byte[]> source, JsonNode load) {
        Rules rules = new Rules(load.get("keys").intValue(), load.get("selectivity").doubleValue());
        int outputEvery = load.get("output_every").intValue();
        source.flatMap((key, value) -> rules.copies(value))
            .repartition(Repartitioned.with(BYTES, VALUE)
                .withNumberOfPartitions(load.get("partitions").intValue()))
            .process(new ProcessorSupplier<Bytes, byte[], Bytes, byte[]>() {
                @Override
                public Processor<Bytes, byte[], Bytes, byte[]> get() {
                    return new Consuming(outputEvery);
                }

                @Override
                public Set<StoreBuilder<?>> stores() {
                    return Set.of(Stores.keyValueStoreBuilder(
                        Stores.persistentKeyValueStore("state"), BYTES, VALUE).withCachingEnabled());
                }
            })
            .to(load.get("app").textValue() + "-output", Produced.with(BYTES, VALUE));
    }

    private static final class Consuming implements Processor<Bytes, byte[], Bytes, byte[]> {
        private final int outputEvery;
        private ProcessorContext<Bytes, byte[]> context;
        private KeyValueStore<Bytes, byte[]> kept;

        Consuming(int outputEvery) {
            this.outputEvery = outputEvery;
        }

        @Override
        public void init(ProcessorContext<Bytes, byte[]> given) {
            context = given;
            kept = given.getStateStore("state");
        }

        @Override
        public void process(Record<Bytes, byte[]> record) {
            long time = record.timestamp();
            long number = ByteBuffer.wrap(record.value()).getLong(Long.BYTES);
            byte[] old = kept.get(record.key());
            ByteBuffer state = ByteBuffer.allocate(STATE_BYTES);
            long count = 1;
            if (old == null) {
                state.putLong(count).putLong(number).putLong(time).putLong(time);
            } else {
                ByteBuffer was = ByteBuffer.wrap(old);
                count += was.getLong();
                state.putLong(count).putLong(was.getLong() + number);
                state.putLong(Math.min(was.getLong(), time)).putLong(Math.max(was.getLong(), time));
            }
            kept.put(record.key(), state.array());
            if (count % outputEvery == 0) {
                context.forward(record.withValue(state.array()));
            }
            StreamsPeer.CONSUMED.increment();
        }
    }

    /** One arc of a ring of hashes for each consumer. */
    private static final class Rules {
        private final long width;
        private final long[] starts;
        private final Bytes[] names;

        Rules(int consumers, double selectivity) {
            width = (long) (selectivity / consumers * 0x1p63);
            List<KeyValue<Long, Bytes>> arcs = new ArrayList<>();
            for (int number = 0; number < consumers; number++) {
                long start = mixed(number) & Long.MAX_VALUE;
                Bytes name = Bytes.wrap(String.format("%016d", number).getBytes());
                arcs.add(KeyValue.pair(start, name));
                if (start > Long.MAX_VALUE - width + 1) { // goes on at the ring's begin
                    arcs.add(KeyValue.pair(start - Long.MAX_VALUE - 1, name));
                }
            }
            arcs.sort(Comparator.comparing((KeyValue<Long, Bytes> arc) -> arc.key));
            starts = arcs.stream().mapToLong(arc -> arc.key).toArray();
            names = arcs.stream().map(arc -> arc.value).toArray(Bytes[]::new);
        }

        List<KeyValue<Bytes, byte[]>> copies(byte[] value) {
            long place = ByteBuffer.wrap(value).getLong() & Long.MAX_VALUE;
            List<KeyValue<Bytes, byte[]>> found = new ArrayList<>(2);
            for (int at = after(place) - 1; at >= 0 && starts[at] > place - width; at--) {
                found.add(KeyValue.pair(names[at], value));
            }
            StreamsPeer.SENT_ON.add(found.size());
            return found;
        }

        /** How many arcs begin at a place or before. */
        private int after(long place) {
            int found = Arrays.binarySearch(starts, place);
            if (found < 0) {
                return -found - 1;
            }
            while (found < starts.length && starts[found] == place) {
                found++;
            }
            return found;
        }

        private static long mixed(long number) {
            long mixed = (number + 1) * 0x9E3779B97F4A7C15L;
            mixed = (mixed ^ mixed >>> 30) * 0xBF58476D1CE4E5B9L;
            mixed = (mixed ^ mixed >>> 27) * 0x94D049BB133111EBL;
            return mixed ^ mixed >>> 31;
        }
    }
}
