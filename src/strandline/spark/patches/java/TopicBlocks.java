package strandline;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
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
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Topics as Spark's own source of Kafka reads them, many records to a row: where to begin and to end, what is lost, and
 * what a checkpoint holds are its business, and so is every word with the broker. A cell has what the records of a row
 * have, one after the other: numbers with their lowest byte first; of bytes how many each has, -1 for none, and then all.
 */
public class TopicBlocks implements TableProvider {
    /** Options of ours: which columns are asked for beside the values, and up to which size these are read whole. */
    static final String WITH = "strandline.with", LARGEST = "strandline.largest", KEPT = "strandline.kept";
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
            return MicroBatchStream.class.isAssignableFrom(KafkaMicroBatchStream.class);
        } catch (NoSuchMethodException other) {
            return false;
        } catch (LinkageError other) {
            return false;
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
        final Readers readers;

        Asked(CaseInsensitiveStringMap options) {
            kafka = ((SupportsRead) new KafkaSourceProvider().getTable(options)).newScanBuilder(options).build();
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
            return new AtOnce(kafka.toBatch(), readers);
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new Stream((KafkaMicroBatchStream) kafka.toMicroBatchStream(checkpoint), readers);
        }
    }

    static class AtOnce implements Batch {
        final Batch kafka;
        final Readers readers;

        AtOnce(Batch kafka, Readers readers) {
            this.kafka = kafka;
            this.readers = readers;
        }

        public InputPartition[] planInputPartitions() {
            return kafka.planInputPartitions();
        }

        public PartitionReaderFactory createReaderFactory() {
            return readers;
        }
    }

    static class Stream implements SupportsTriggerAvailableNow, ReportsSourceMetrics, MicroBatchStream {
        final KafkaMicroBatchStream kafka;
        final Readers readers;

        Stream(KafkaMicroBatchStream kafka, Readers readers) {
            this.kafka = kafka;
            this.readers = readers;
        }

        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            return kafka.planInputPartitions(start, end);
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
            return kafka.latestOffset(start, limit);
        }

        public Offset reportLatestOffset() {
            return kafka.reportLatestOffset();
        }

        public ReadLimit getDefaultReadLimit() {
            return kafka.getDefaultReadLimit();
        }

        public void prepareForTriggerAvailableNow() {
            kafka.prepareForTriggerAvailableNow();
        }

        public Offset deserializeOffset(String json) {
            return kafka.deserializeOffset(json);
        }

        public void commit(Offset end) {
            kafka.commit(end);
        }

        public Map metrics(Optional latest) {
            return kafka.metrics(latest);
        }

        public void stop() {
            kafka.stop();
        }

        public String toString() {
            return kafka.toString();
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
            return new Reader((KafkaBatchInputPartition) partition, this);
        }
    }

    static class Reader implements PartitionReader {
        final KafkaBatchInputPartition mine;
        final KafkaDataConsumer consumer;
        final UTF8String topic;
        final int largest, kept;
        final Numbers offsets = new Numbers(8), sizes = new Numbers(4);
        final Texts values = new Texts();
        final Texts keys;
        final Numbers times, types;
        long next;
        boolean cut;

        Reader(KafkaBatchInputPartition mine, Readers asked) {
            this.mine = mine;
            topic = UTF8String.fromString(mine.offsetRange().topic());
            next = mine.offsetRange().fromOffset();
            largest = asked.largest;
            kept = asked.kept;
            keys = asked.has("key") ? new Texts() : null;
            times = asked.has("timestamp") ? new Numbers(8) : null;
            types = asked.has("timestampType") ? new Numbers(4) : null;
            consumer = KafkaDataConsumer.acquire(mine.offsetRange().topicPartition(), mine.executorKafkaParams());
        }

        public boolean next() {
            long end = mine.offsetRange().untilOffset();
            cut = false;
            int many = 0;
            while (next < end && many < RECORDS && values.size() < BYTES) {
                ConsumerRecord record = consumer.get(next, end, mine.pollTimeoutMs(), mine.failOnDataLoss());
                if (record == null) {
                    // Nothing is left of what was to be read: taken back, or compacted away.
                    next = end;
                } else {
                    add(record);
                    next = record.offset() + 1;
                    many++;
                }
            }
            return many > 0;
        }

        void add(ConsumerRecord record) {
            byte[] value = (byte[]) record.value();
            boolean tooLarge = value != null && value.length > largest;
            cut |= tooLarge;
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

        public Object get() {
            byte[] cutTo = sizes.taken();
            return new GenericInternalRow(new Object[] {
                topic, Integer.valueOf(mine.offsetRange().partition()), offsets.taken(), values.taken(), cut ? cutTo : null,
                keys == null ? null : keys.taken(), times == null ? null : times.taken(),
                types == null ? null : types.taken()
            });
        }

        public void close() {
            consumer.release();
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
