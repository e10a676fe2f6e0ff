import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.CRC32;

/** What one run in this process took, and what it computed. */
final class Measured {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static long begunNs;
    private static long begunCpuNs;

    private Measured() { }

    static void begin() {
        begunCpuNs = SYSTEM.getProcessCpuTime();
        begunNs = System.nanoTime();
    }

    static boolean isRunning() {
        return begunNs != 0;
    }

    static Took took() {
        return new Took((System.nanoTime() - begunNs) / 1e9, (SYSTEM.getProcessCpuTime() - begunCpuNs) / 1e9);
    }

    static void tell(long records, Took took, String digest) throws Exception {
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

    record Took(double seconds, double cpuSeconds) { }

    /** Order does not matter: how many, and the sum of their CRCs. */
    static final class Digest {
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
