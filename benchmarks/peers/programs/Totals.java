// Kafka Streams: windows that speak once they are closed, two threads, RocksDB, at least once; run from its source.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

public class Totals {
    static final int PATIENCE = 280;
    static final ObjectMapper JSON = new ObjectMapper();

    static long panes, total, plays;
    static PrintWriter kept;

    public static void main(String[] arguments) throws Exception {
        Path path = Path.of(arguments[0]).toAbsolutePath();
        JsonNode order = JSON.readTree(path.toFile());
        Path home = path.getParent();
        Files.createDirectories(home.resolve("panes"));
        if (order.get("keep").asBoolean()) {
            kept = new PrintWriter(Files.newBufferedWriter(home.resolve("panes").resolve("heard.jsonl")));
        }
        long count = order.get("count").asLong();
        CountDownLatch done = new CountDownLatch(1);
        StreamsBuilder builder = build(order, count, done);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(order, home));
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace();
            Runtime.getRuntime().halt(4);
            return null;
        });
        streams.start();
        if (!done.await(PATIENCE, TimeUnit.SECONDS)) {
            System.err.println("after " + PATIENCE + " seconds its windows held " + plays + " events of " + count);
            Runtime.getRuntime().halt(3);
        }
        streams.close();
        if (kept != null) {
            kept.close();
        }
        String told = "{\"panes\": " + panes + ", \"total\": " + total + ", \"plays\": " + plays + "}";
        Files.writeString(home.resolve("run.json"), told);
    }

    static StreamsBuilder build(JsonNode order, long count, CountDownLatch done) {
        Duration length = Duration.ofMillis(order.get("length").asLong());
        Duration delay = Duration.ofMillis(order.get("delay").asLong());
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(order.get("events").asText(), Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .mapValues(Totals::value)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .windowedBy(TimeWindows.ofSizeAndGrace(length, delay))
            .aggregate(
                () -> held(0, 0),
                (key, value, held) -> held(first(held) + value, second(held) + 1),
                Materialized.<String, byte[], WindowStore<Bytes, byte[]>>as("totals")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.ByteArray()))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream()
            .foreach((window, held) -> {
                if (hear(Long.parseLong(window.key()), window.window().start(), length.toMillis(), held) == count) {
                    done.countDown();
                }
            });
        return builder;
    }

    static Properties settings(JsonNode order, Path home) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "totals-" + UUID.randomUUID());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, order.get("servers").asText());
        settings.put(StreamsConfig.STATE_DIR_CONFIG, home.resolve("state").toString());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    static long value(byte[] event) {
        try {
            return JSON.readTree(event).get("value").asLong();
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }

    static byte[] held(long total, long plays) {
        return ByteBuffer.allocate(16).putLong(total).putLong(plays).array();
    }

    static long first(byte[] held) {
        return ByteBuffer.wrap(held).getLong();
    }

    static long second(byte[] held) {
        return ByteBuffer.wrap(held).getLong(8);
    }

    static synchronized long hear(long key, long start, long length, byte[] held) {
        if (key != -1) {
            panes += 1;
            total += first(held);
            plays += second(held);
            if (kept != null) {
                kept.println("{\"key\": " + key + ", \"start_ms\": " + start + ", \"end_ms\": " + (start + length)
                    + ", \"total\": " + first(held) + ", \"plays\": " + second(held) + "}");
            }
        }
        return plays;
    }
}
