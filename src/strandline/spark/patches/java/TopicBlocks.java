package strandline;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.Timer;
import java.util.TimerTask;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaSourceOffset;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Topics as Spark's own source of Kafka reads them, many records to a row and many partitions to a task. Spark's source
 * decides where a batch begins and ends, what is lost, and what a checkpoint holds. A task with several partitions reads
 * them with one consumer; where that fails, Spark's reader reads the rest of the partition and reports the error. A cell
 * has what the records of a row have, one after the other: numbers with their lowest byte first; of bytes how many each
 * has, -1 for none, and then all.
 */
public class TopicBlocks implements TableProvider {
    /** Options of ours: which columns are asked for beside the values, and up to which size these are read whole. */
    static final String WITH = "strandline.with", LARGEST = "strandline.largest", KEPT = "strandline.kept";
    /** How many tasks the session runs at once; without it each partition is a task. */
    static final String CORES = "strandline.cores";
    /** From so many records on a batch is divided among more tasks than cores; in a bounded read a task has at most so many. */
    static final long ENOUGH = 50000, MOST = 500000;
    /** A row is full with so many bytes, or so many records. */
    static final int BYTES = 1 << 20, RECORDS = 1 << 14;

    static final StructType SCHEMA = new StructType()
        .add("topic", DataTypes.StringType).add("partition", DataTypes.IntegerType)
        .add("offset", DataTypes.BinaryType).add("value", DataTypes.BinaryType).add("size", DataTypes.BinaryType)
        .add("key", DataTypes.BinaryType).add("timestamp", DataTypes.BinaryType)
        .add("timestampType", DataTypes.BinaryType);

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new Topics();
    }

    /** Whether this Spark reads topics by the means that are used here. */
    public static boolean fits() {
        try {
            Class[] asked = new Class[] {long.class, long.class, long.class, boolean.class};
            KafkaDataConsumer.class.getMethod("get", asked);
            String[] told = new String[] {"offsetRange", "executorKafkaParams", "pollTimeoutMs", "failOnDataLoss"};
            for (int i = 0; i < told.length; i++) {
                KafkaBatchInputPartition.class.getMethod(told[i], new Class[0]);
            }
            KafkaSourceOffset.class.getMethod("partitionToOffsets", new Class[0]);
            return MicroBatchStream.class.isAssignableFrom(KafkaMicroBatchStream.class);
        } catch (NoSuchMethodException other) {
            return false;
        } catch (LinkageError other) {
            return false;
        }
    }

    static long records(InputPartition[] all) {
        long found = 0;
        for (int i = 0; i < all.length; i++) {
            found += ((KafkaBatchInputPartition) all[i]).offsetRange().size();
        }
        return found;
    }

    /** Divide partitions among so many tasks, about as many records each: the largest first, each to the smallest task. */
    static InputPartition[] grouped(InputPartition[] all, long tasks, int cores) {
        if (cores < 1 || all.length <= tasks) {
            return all;
        }
        InputPartition[] sorted = (InputPartition[]) all.clone();
        Arrays.sort(sorted, new Comparator() {
            public int compare(Object one, Object other) {
                long left = ((KafkaBatchInputPartition) one).offsetRange().size();
                long right = ((KafkaBatchInputPartition) other).offsetRange().size();
                return left == right ? 0 : left > right ? -1 : 1;
            }
        });
        ArrayList[] found = new ArrayList[(int) tasks];
        long[] sizes = new long[(int) tasks];
        for (int i = 0; i < sorted.length; i++) {
            int least = 0;
            for (int j = 0; j < found.length; j++) {
                // A partition costs something too, however few its records are.
                least = sizes[j] < sizes[least] ? j : least;
            }
            if (found[least] == null) {
                found[least] = new ArrayList();
            }
            found[least].add(sorted[i]);
            sizes[least] += ((KafkaBatchInputPartition) sorted[i]).offsetRange().size() + 20;
        }
        InputPartition[] groups = new InputPartition[found.length];
        for (int j = 0; j < found.length; j++) {
            groups[j] = new Several((InputPartition[]) found[j].toArray(new InputPartition[0]));
        }
        return groups;
    }

    /** Partitions that one task reads. */
    static class Several implements InputPartition {
        final InputPartition[] all;

        Several(InputPartition[] all) {
            this.all = all;
        }

        public String[] preferredLocations() {
            return new String[0];
        }
    }

    static class Topics implements SupportsRead {
        public String name() {
            return "TopicBlocks";
        }

        public StructType schema() {
            return SCHEMA;
        }

        public Set capabilities() {
            return new HashSet(Arrays.asList(new Object[] {TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ}));
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return new Asked(options);
        }
    }

    static class Asked implements ScanBuilder, Scan {
        final Scan kafka;
        final int cores;
        final Readers readers;
        final HashMap client = new HashMap();

        Asked(CaseInsensitiveStringMap options) {
            kafka = ((SupportsRead) new KafkaSourceProvider().getTable(options)).newScanBuilder(options).build();
            cores = options.getInt(CORES, 0);
            for (Iterator all = options.asCaseSensitiveMap().entrySet().iterator(); all.hasNext();) {
                Map.Entry each = (Map.Entry) all.next();
                String name = ((String) each.getKey()).toLowerCase();
                if (name.startsWith("kafka.")) {
                    client.put(name.substring(6), each.getValue());
                }
            }
            readers = new Readers(
                (String) options.getOrDefault(WITH, ""), options.getInt(LARGEST, Integer.MAX_VALUE), options.getInt(KEPT, 0));
        }

        public Scan build() {
            return this;
        }

        public StructType readSchema() {
            return SCHEMA;
        }

        public Batch toBatch() {
            return new AtOnce(kafka.toBatch(), cores, readers);
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new Stream((KafkaMicroBatchStream) kafka.toMicroBatchStream(checkpoint), cores, readers, client);
        }
    }

    static class AtOnce implements Batch {
        final Batch kafka;
        final int cores;
        final Readers readers;

        AtOnce(Batch kafka, int cores, Readers readers) {
            this.kafka = kafka;
            this.cores = cores;
            this.readers = readers;
        }

        public InputPartition[] planInputPartitions() {
            InputPartition[] all = kafka.planInputPartitions();
            return grouped(all, Math.max(2L * cores, 1 + records(all) / MOST), cores);
        }

        public PartitionReaderFactory createReaderFactory() {
            return readers;
        }
    }

    static class Stream implements SupportsTriggerAvailableNow, ReportsSourceMetrics, MicroBatchStream {
        /** So long the broker is not asked again while the watch says that nothing came; a new partition waits for it. */
        static final long ASK_AGAIN_MS = 2000;
        /** So long a job with nothing to read waits for news before Spark asks its other sources again. */
        static final long WAIT_MS = 40;

        final KafkaMicroBatchStream kafka;
        final int cores;
        final Readers readers;
        final Map client;
        Watch watch;
        boolean isLimited = false;
        Offset known, silent;
        String knownText;
        long asked;

        Stream(KafkaMicroBatchStream kafka, int cores, Readers readers, Map client) {
            this.kafka = kafka;
            this.cores = cores;
            this.readers = readers;
            this.client = client;
        }

        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            InputPartition[] all = kafka.planInputPartitions(start, end);
            return grouped(all, Math.max(cores, Math.min(2L * cores, records(all) / ENOUGH)), cores);
        }

        public PartitionReaderFactory createReaderFactory() {
            return readers;
        }

        public Offset initialOffset() {
            return kafka.initialOffset();
        }

        public Offset latestOffset() {
            return kafka.latestOffset();
        }

        public Offset latestOffset(Offset start, ReadLimit limit) {
            if (silent != null && silent == start && System.currentTimeMillis() - asked < ASK_AGAIN_MS && watch.isQuiet(WAIT_MS)) {
                return start;
            }
            Offset end = kafka.latestOffset(start, limit);
            silent = null;
            if (end != null && end.equals(start) && !isLimited && start instanceof KafkaSourceOffset) {
                if (watch == null) {
                    watch = new Watch(client);
                    watch.start();
                }
                watch.from(CollectionConverters.asJava(((KafkaSourceOffset) start).partitionToOffsets()));
                silent = start;
                asked = System.currentTimeMillis();
            }
            return end;
        }

        public Offset reportLatestOffset() {
            return kafka.reportLatestOffset();
        }

        public ReadLimit getDefaultReadLimit() {
            return kafka.getDefaultReadLimit();
        }

        public void prepareForTriggerAvailableNow() {
            isLimited = true;
            kafka.prepareForTriggerAvailableNow();
        }

        public Offset deserializeOffset(String json) {
            // Spark parses the same text again whenever it asks for news.
            if (!json.equals(knownText)) {
                known = kafka.deserializeOffset(json);
                knownText = json;
            }
            return known;
        }

        public void commit(Offset end) {
            kafka.commit(end);
        }

        public Map metrics(Optional latest) {
            return kafka.metrics(latest);
        }

        public void stop() {
            if (watch != null) {
                watch.end();
            }
            kafka.stop();
            Consumers.closeIdle(0);
        }

        public String toString() {
            return kafka.toString();
        }
    }

    /**
     * Waits at the broker for the next record of any partition. To ask for the newest offsets many times a second costs
     * both sides more than a request that the broker answers when a record comes.
     */
    static class Watch extends Thread {
        /** Whoever waits for news of any watch. */
        static final Object NEWS = new Object();
        static final long POLL_MS = 1000;

        final HashMap params;
        Map wanted;
        boolean hasNews = true;
        volatile boolean isOver = false;

        Watch(Map client) {
            super("strandline-watch");
            setDaemon(true);
            params = new HashMap(client);
            params.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
            params.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
            params.put("enable.auto.commit", "false");
            params.put("auto.offset.reset", "none");
            params.put("allow.auto.create.topics", "false");
            params.put("fetch.max.wait.ms", String.valueOf(POLL_MS));
            // The records are not wanted, only that there are some.
            params.put("max.poll.records", "1");
            params.put("max.partition.fetch.bytes", "1024");
            params.remove("receive.buffer.bytes");
        }

        /** Watch from these offsets on. */
        void from(Map offsets) {
            synchronized (NEWS) {
                if (!hasNews && offsets.equals(wanted)) {
                    return;
                }
                wanted = offsets;
                hasNews = false;
                NEWS.notifyAll();
            }
        }

        /** Whether nothing has come, after waiting for so long. */
        boolean isQuiet(long ms) {
            synchronized (NEWS) {
                if (!hasNews) {
                    try {
                        NEWS.wait(ms);
                    } catch (InterruptedException stopped) {
                        Thread.currentThread().interrupt();
                    }
                }
                return !hasNews;
            }
        }

        void end() {
            isOver = true;
            synchronized (NEWS) {
                NEWS.notifyAll();
            }
        }

        void news() {
            synchronized (NEWS) {
                hasNews = true;
                NEWS.notifyAll();
            }
        }

        public void run() {
            KafkaConsumer consumer = null;
            Map watched = null;
            while (!isOver) {
                Map next;
                synchronized (NEWS) {
                    while (hasNews && !isOver) {
                        try {
                            NEWS.wait(POLL_MS);
                        } catch (InterruptedException stopped) {
                            isOver = true;
                        }
                    }
                    next = wanted;
                }
                try {
                    if (consumer == null && !isOver) {
                        consumer = new KafkaConsumer(params);
                        watched = null;
                    }
                    if (!isOver && (next != watched || hasMoved(consumer, next))) {
                        consumer.assign(next.keySet());
                        for (Iterator all = next.entrySet().iterator(); all.hasNext();) {
                            Map.Entry each = (Map.Entry) all.next();
                            consumer.seek((TopicPartition) each.getKey(), ((Long) each.getValue()).longValue());
                        }
                        watched = next;
                    }
                    // Without news it goes on where it is; to poll for longer would delay the end.
                    if (!isOver && (!consumer.poll(Duration.ofMillis(POLL_MS)).isEmpty() || hasMoved(consumer, next))) {
                        news();
                    }
                } catch (RuntimeException problem) {
                    // Spark asks the broker itself, and reports what is wrong.
                    news();
                    close(consumer);
                    consumer = null;
                    pause();
                }
            }
            close(consumer);
        }

        /** Wait before a broker that does not answer is asked again. */
        void pause() {
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException stopped) {
                isOver = true;
            }
        }

        static boolean hasMoved(KafkaConsumer consumer, Map offsets) {
            for (Iterator all = offsets.entrySet().iterator(); all.hasNext();) {
                Map.Entry each = (Map.Entry) all.next();
                if (consumer.position((TopicPartition) each.getKey()) != ((Long) each.getValue()).longValue()) {
                    return true;
                }
            }
            return false;
        }

        static void close(KafkaConsumer consumer) {
            if (consumer != null) {
                try {
                    consumer.close(Duration.ZERO);
                } catch (RuntimeException gone) {
                    // It was to end anyway.
                }
            }
        }
    }

    /** What travels to the tasks. */
    static class Readers implements PartitionReaderFactory {
        final String with;
        final int largest, kept;

        Readers(String with, int largest, int kept) {
            this.with = "," + with + ",";
            this.largest = largest;
            this.kept = kept;
        }

        boolean has(String column) {
            return with.contains("," + column + ",");
        }

        public PartitionReader createReader(InputPartition partition) {
            if (partition instanceof Several) {
                return new ManyReader(((Several) partition).all, this);
            }
            return new Reader((KafkaBatchInputPartition) partition, this, new Cells(this));
        }
    }

    /** The cells of a row that is being filled. */
    static class Cells {
        final int largest, kept;
        final Numbers offsets = new Numbers(8), sizes = new Numbers(4);
        final Texts values = new Texts();
        final Texts keys;
        final Numbers times, types;
        boolean cut;
        int many;

        Cells(Readers asked) {
            largest = asked.largest;
            kept = asked.kept;
            keys = asked.has("key") ? new Texts() : null;
            times = asked.has("timestamp") ? new Numbers(8) : null;
            types = asked.has("timestampType") ? new Numbers(4) : null;
        }

        boolean isFull() {
            return many >= RECORDS || values.size() >= BYTES;
        }

        void add(ConsumerRecord record) {
            byte[] value = (byte[]) record.value();
            boolean tooLarge = value != null && value.length > largest;
            cut |= tooLarge;
            many++;
            offsets.add(record.offset());
            sizes.add(tooLarge ? value.length : -1);
            values.add(value, tooLarge ? kept : Integer.MAX_VALUE);
            if (keys != null) {
                keys.add((byte[]) record.key(), Integer.MAX_VALUE);
            }
            if (times != null) {
                times.add(record.timestamp());
            }
            if (types != null) {
                types.add(record.timestampType().id);
            }
        }

        Object taken(UTF8String topic, int partition) {
            byte[] cutTo = sizes.taken();
            Object row = new GenericInternalRow(new Object[] {
                topic, Integer.valueOf(partition), offsets.taken(), values.taken(), cut ? cutTo : null,
                keys == null ? null : keys.taken(), times == null ? null : times.taken(),
                types == null ? null : types.taken()
            });
            cut = false;
            many = 0;
            return row;
        }
    }

    /** Reads one partition with the consumer that Spark keeps for it. */
    static class Reader implements PartitionReader {
        final KafkaBatchInputPartition mine;
        final KafkaDataConsumer consumer;
        final UTF8String topic;
        final Cells cells;
        long next;

        Reader(KafkaBatchInputPartition mine, Readers asked, Cells cells) {
            this.mine = mine;
            this.cells = cells;
            topic = UTF8String.fromString(mine.offsetRange().topic());
            next = mine.offsetRange().fromOffset();
            consumer = KafkaDataConsumer.acquire(mine.offsetRange().topicPartition(), mine.executorKafkaParams());
        }

        public boolean next() {
            long end = mine.offsetRange().untilOffset();
            while (next < end && !cells.isFull()) {
                ConsumerRecord record = consumer.get(next, end, mine.pollTimeoutMs(), mine.failOnDataLoss());
                if (record == null) {
                    // Nothing is left of what was to be read: taken back, or compacted away.
                    next = end;
                } else {
                    cells.add(record);
                    next = record.offset() + 1;
                }
            }
            return cells.many > 0;
        }

        public Object get() {
            return cells.taken(topic, mine.offsetRange().partition());
        }

        public void close() {
            consumer.release();
        }
    }

    /** A partition of a task with several: what is left to read of it. */
    static class Left {
        final KafkaBatchInputPartition mine;
        final TopicPartition place;
        final UTF8String topic;
        final long end;
        long next;

        Left(KafkaBatchInputPartition mine) {
            this.mine = mine;
            place = mine.offsetRange().topicPartition();
            topic = UTF8String.fromString(place.topic());
            next = mine.offsetRange().fromOffset();
            end = mine.offsetRange().untilOffset();
        }
    }

    /** Records of one partition that have been received. */
    static class Received {
        final Left of;
        final List records;
        final int end;
        int next = 0;

        Received(Left of, List records, int end) {
            this.of = of;
            this.records = records;
            this.end = end;
        }
    }

    /** Reads several partitions with one consumer. */
    static class ManyReader implements PartitionReader {
        final Readers asked;
        final Cells cells;
        final HashMap open = new HashMap();
        final ArrayDeque failed = new ArrayDeque(), received = new ArrayDeque();
        final long timeout;
        final Consumers consumers;
        Consumers.Pooled consumer;
        Reader single;
        Left current;

        ManyReader(InputPartition[] all, Readers asked) {
            this.asked = asked;
            cells = new Cells(asked);
            KafkaBatchInputPartition first = (KafkaBatchInputPartition) all[0];
            timeout = first.pollTimeoutMs();
            consumers = Consumers.of(first.executorKafkaParams());
            for (int i = 0; i < all.length; i++) {
                Left each = new Left((KafkaBatchInputPartition) all[i]);
                if (open.containsKey(each.place)) {
                    // Another piece of a long partition.
                    failed.add(each);
                } else {
                    open.put(each.place, each);
                    keptFrom(each);
                }
            }
            settle(null);
        }

        /** Begin with the records that the batch before received and did not need. */
        void keptFrom(Left each) {
            List kept = consumers.takeKept(each.place, each.next);
            if (kept != null) {
                take(each, kept);
            }
        }

        /** Take those of the received records that belong to the range; keep the others for the next batch. */
        void take(Left each, List records) {
            int many = records.size();
            while (many > 0 && ((ConsumerRecord) records.get(many - 1)).offset() >= each.end) {
                many--;
            }
            if (many > 0) {
                each.next = ((ConsumerRecord) records.get(many - 1)).offset() + 1;
                received.add(new Received(each, records, many));
            }
            if (many < records.size()) {
                consumers.keep(each.place, each.end, records.subList(many, records.size()));
                each.next = each.end;
            }
        }

        /** Leave out the partitions that have been read. `at` tells how far the consumer has come. */
        void settle(KafkaConsumer at) {
            ArrayList over = new ArrayList();
            for (Iterator all = open.values().iterator(); all.hasNext();) {
                Left each = (Left) all.next();
                // Behind the last record there may be some that nobody sees: marks of transactions.
                if (each.next >= each.end || (at != null && at.position(each.place) >= each.end)) {
                    all.remove();
                    over.add(each.place);
                }
            }
            if (at != null && !over.isEmpty()) {
                at.pause(over);
            }
        }

        public boolean next() {
            while (true) {
                if (single != null) {
                    if (single.next()) {
                        return true;
                    }
                    single.close();
                    single = null;
                } else if (!received.isEmpty()) {
                    fill();
                    return true;
                } else if (!open.isEmpty()) {
                    poll();
                } else if (!failed.isEmpty()) {
                    release(true);
                    current = (Left) failed.remove();
                    single = new Reader(current.mine, asked, cells);
                    single.next = current.next;
                } else {
                    release(true);
                    return false;
                }
            }
        }

        void fill() {
            Received some = (Received) received.peek();
            current = some.of;
            while (some.next < some.end && !cells.isFull()) {
                cells.add((ConsumerRecord) some.records.get(some.next++));
            }
            if (some.next == some.end) {
                received.remove();
            }
        }

        /** Receive records, or give up: then Spark's reader reads what is left, and reports what is wrong. */
        void poll() {
            try {
                if (consumer == null) {
                    consumer = consumers.acquire(open);
                }
                long until = System.currentTimeMillis() + timeout;
                do {
                    ConsumerRecords some = consumer.kafka.poll(Duration.ofMillis(200));
                    for (Iterator places = some.partitions().iterator(); places.hasNext();) {
                        TopicPartition place = (TopicPartition) places.next();
                        Left each = (Left) open.get(place);
                        if (each != null) {
                            take(each, some.records(place));
                        }
                    }
                    int before = open.size();
                    settle(consumer.kafka);
                    if (open.size() < before || !some.isEmpty()) {
                        return;
                    }
                } while (System.currentTimeMillis() < until);
                giveUp(new ArrayList(open.keySet()));
            } catch (InterruptException stopped) {
                release(false);
                throw stopped;
            } catch (OffsetOutOfRangeException gone) {
                giveUp(gone.partitions());
            } catch (KafkaException problem) {
                giveUp(new ArrayList(open.keySet()));
            }
        }

        void giveUp(Collection places) {
            for (Iterator all = places.iterator(); all.hasNext();) {
                Object each = open.remove(all.next());
                if (each != null) {
                    failed.add(each);
                }
            }
            release(false);
        }

        void release(boolean whole) {
            if (consumer != null) {
                consumers.release(consumer, whole);
                consumer = null;
            }
        }

        public Object get() {
            return cells.taken(current.topic, current.place.partition());
        }

        public void close() {
            if (single != null) {
                single.close();
            }
            release(received.isEmpty() && open.isEmpty());
        }
    }

    /** The consumers of a stream on one machine, and records that were received and not needed yet. */
    static class Consumers {
        static final HashMap ALL = new HashMap();
        /** So many bytes are kept at most for the next batch, and so long. */
        static final long MOST_KEPT = 64L << 20, KEPT_MS = 60000, IDLE_MS = 300000;
        /** The bytes that a consumer asks of all its partitions together. */
        static final int AT_ONCE = 32 << 20, FEWEST = 1 << 16;

        static {
            new Timer("strandline-consumers", true).schedule(new TimerTask() {
                public void run() {
                    closeIdle(IDLE_MS);
                }
            }, KEPT_MS, KEPT_MS);
        }

        final Map params;
        final ArrayDeque idle = new ArrayDeque();
        final HashMap kept = new HashMap();
        long keptBytes;

        Consumers(Map params) {
            this.params = params;
        }

        static class Pooled {
            final KafkaConsumer kafka;
            final int fetched;
            long used;

            Pooled(KafkaConsumer kafka, int fetched) {
                this.kafka = kafka;
                this.fetched = fetched;
            }
        }

        static class Kept {
            final long from, bytes, since;
            final List records;

            Kept(long from, List records, long bytes) {
                this.from = from;
                this.records = records;
                this.bytes = bytes;
                since = System.currentTimeMillis();
            }
        }

        static Consumers of(Map params) {
            synchronized (ALL) {
                Consumers found = (Consumers) ALL.get(params);
                if (found == null) {
                    found = new Consumers(params);
                    ALL.put(params, found);
                }
                return found;
            }
        }

        /** Close the consumers that nobody has used for so long, and forget old records. */
        static void closeIdle(long ms) {
            long now = System.currentTimeMillis();
            synchronized (ALL) {
                for (Iterator all = ALL.values().iterator(); all.hasNext();) {
                    Consumers each = (Consumers) all.next();
                    each.forget(now - Math.min(ms, KEPT_MS));
                    each.close(now - ms);
                    if (each.idle.isEmpty() && each.kept.isEmpty()) {
                        all.remove();
                    }
                }
            }
        }

        synchronized void close(long before) {
            for (Iterator all = idle.iterator(); all.hasNext();) {
                Pooled each = (Pooled) all.next();
                if (each.used <= before) {
                    all.remove();
                    each.kafka.close(Duration.ZERO);
                }
            }
        }

        synchronized void forget(long before) {
            for (Iterator all = kept.values().iterator(); all.hasNext();) {
                Kept each = (Kept) all.next();
                if (each.since <= before) {
                    all.remove();
                    keptBytes -= each.bytes;
                }
            }
        }

        synchronized List takeKept(TopicPartition place, long from) {
            Kept found = (Kept) kept.remove(place);
            if (found == null) {
                return null;
            }
            keptBytes -= found.bytes;
            return found.from == from ? found.records : null;
        }

        synchronized void keep(TopicPartition place, long from, List records) {
            long bytes = 0;
            for (Iterator all = records.iterator(); all.hasNext();) {
                ConsumerRecord each = (ConsumerRecord) all.next();
                bytes += 100 + Math.max(each.serializedKeySize(), 0) + Math.max(each.serializedValueSize(), 0);
            }
            if (keptBytes + bytes <= MOST_KEPT) {
                Kept before = (Kept) kept.put(place, new Kept(from, records, bytes));
                keptBytes += bytes - (before == null ? 0 : before.bytes);
            }
        }

        /** Return a consumer that reads these partitions from where they are to be read. */
        Pooled acquire(Map open) {
            int fetched = FEWEST;
            while (2L * fetched * open.size() <= AT_ONCE && fetched < 4 << 20) {
                fetched *= 2;
            }
            Pooled found = null;
            synchronized (this) {
                for (Iterator all = idle.iterator(); found == null && all.hasNext();) {
                    Pooled each = (Pooled) all.next();
                    if (each.fetched == fetched) {
                        all.remove();
                        found = each;
                    }
                }
            }
            if (found == null) {
                HashMap options = new HashMap(params);
                options.put("max.partition.fetch.bytes", Integer.valueOf(fetched));
                found = new Pooled(new KafkaConsumer(options), fetched);
            }
            try {
                found.kafka.assign(open.keySet());
                found.kafka.resume(open.keySet());
                for (Iterator all = open.values().iterator(); all.hasNext();) {
                    Left each = (Left) all.next();
                    found.kafka.seek(each.place, each.next);
                }
                return found;
            } catch (KafkaException problem) {
                found.kafka.close(Duration.ZERO);
                throw problem;
            }
        }

        void release(Pooled consumer, boolean whole) {
            if (!whole) {
                consumer.kafka.close(Duration.ZERO);
                return;
            }
            consumer.used = System.currentTimeMillis();
            synchronized (this) {
                idle.addFirst(consumer);
            }
        }
    }

    /** Numbers of one width. */
    static class Numbers {
        final int width;
        final ByteBuffer all;

        Numbers(int width) {
            this.width = width;
            all = ByteBuffer.allocate(width * RECORDS).order(ByteOrder.LITTLE_ENDIAN);
        }

        void add(long number) {
            if (width == 8) {
                all.putLong(number);
            } else {
                all.putInt((int) number);
            }
        }

        byte[] taken() {
            byte[] found = Arrays.copyOf(all.array(), all.position());
            all.clear();
            return found;
        }
    }

    /** Bytes, and before them how many each has. */
    static class Texts {
        final Numbers sizes = new Numbers(4);
        byte[] all = new byte[1 << 16];
        int filled = 0;

        int size() {
            return filled;
        }

        void add(byte[] bytes, int most) {
            int size = bytes == null ? 0 : Math.min(bytes.length, most);
            sizes.add(bytes == null ? -1 : size);
            if (size > all.length - filled) {
                all = Arrays.copyOf(all, Math.max(2 * all.length, filled + size));
            }
            if (size > 0) {
                System.arraycopy(bytes, 0, all, filled, size);
            }
            filled += size;
        }

        byte[] taken() {
            byte[] before = sizes.taken();
            byte[] found = Arrays.copyOf(before, before.length + filled);
            System.arraycopy(all, 0, found, before.length, filled);
            filled = 0;
            return found;
        }
    }
}
