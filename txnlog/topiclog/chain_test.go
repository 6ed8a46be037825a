package topiclog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

// batchAt is a batch of some records, as it lies in a log.
func batchAt(tb testing.TB, base int64, records ...txnlog.Record) []byte {
	tb.Helper()
	b := new(batch)
	if err := b.addAll(records); err != nil {
		tb.Fatal(err)
	}
	raw := b.encode(producer{7, 1}, int32(base), 1)
	binary.BigEndian.PutUint64(raw, uint64(base))
	return raw
}

// logOf is a log of three batches, of one, three and two records, with the high
// watermark behind it. Compaction has left nothing of the offsets 14 to 19.
func logOf(tb testing.TB) (batches [][]byte, from, end int64) {
	tb.Helper()
	return [][]byte{
		batchAt(tb, 10, logtest.Put("a", 1)),
		batchAt(tb, 11, logtest.Put("a", 2), logtest.Put("b", 1), logtest.Put("c", 1)),
		batchAt(tb, 20, logtest.Put("a", 3), logtest.Put("d", 1)),
	}, 10, 22
}

func followed(raw []byte, from, end int64) (links, chain) {
	c := chain{next: from, before: from, midway: true}
	l := c.follow(raw, end, kgo.DefaultDecompressor())
	return l, c
}

// written is what a replay takes from records: in this order, these keys and values.
func written(records []txnlog.RawRecord) string {
	var all bytes.Buffer
	for _, r := range records {
		fmt.Fprintf(&all, "%d/%d %x=%x\n", r.ProducerID, r.ProducerEpoch, r.Key, r.Value)
	}
	return all.String()
}

func TestEveryBitOfABatchHeaderIsRefusedOrChangesNothing(t *testing.T) {
	for _, resealed := range []bool{false, true} {
		t.Run(fmt.Sprintf("resealed=%v", resealed), func(t *testing.T) { everyBit(t, resealed) })
	}
}

// everyBit changes one bit after the other; resealed, the CRC is made good again, as
// by a broker that writes nonsense.
func everyBit(t *testing.T, resealed bool) {
	t.Helper()
	batches, from, end := logOf(t)
	whole, after := followed(bytes.Join(batches, nil), from, end)
	if whole.damage != nil || after.next != end {
		t.Fatalf("the log as it was written: %+v, %+v", whole.damage, after)
	}
	refused := 0
	for i := range batches {
		for bit := range 8 * batchOverhead {
			at := bit / 8
			changed := bytes.Clone(batches[i])
			changed[at] ^= 1 << (bit % 8)
			if size := int(binary.BigEndian.Uint32(changed[lengthAt:])) + lengthEnd; resealed && size > crcStart && size <= len(changed) {
				binary.BigEndian.PutUint32(changed[crcAt:], crc32.Checksum(changed[crcStart:size], crc32c))
			}
			log := append([][]byte(nil), batches...)
			log[i] = changed
			got, reached := followed(bytes.Join(log, nil), from, end)
			cutOff := got.damage == nil && reached.next < end // fetched again, alone
			if cutOff {
				rest := bytes.Join(log, nil)[got.bytes:]
				again := reached.follow(rest, end, kgo.DefaultDecompressor())
				got.damage, got.lost = again.damage, append(got.lost, again.lost...)
			}
			switch {
			case got.damage != nil || len(got.lost) > 0:
				refused++
			case resealed && (at >= producerAt && at < epochAt+2 || at == crcAt):
				// Whose record it is, is not for the reader to judge: a replay does.
			case written(got.records) != written(whole.records):
				t.Errorf("bit %d of byte %d of batch %d: read\n%swant\n%s", bit%8, at, i, written(got.records), written(whole.records))
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func TestTheDamagedPlaceIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(batches [][]byte)
		want   int64
	}{
		"a batch that lies too low":                  {func(b [][]byte) { binary.BigEndian.PutUint64(b[1], 3) }, 11},
		"a batch that lies too high":                 {func(b [][]byte) { binary.BigEndian.PutUint64(b[1], 19) }, 11},
		"a batch that lies behind the end":           {func(b [][]byte) { binary.BigEndian.PutUint64(b[2], 1<<40) }, 14},
		"a batch with a negative offset":             {func(b [][]byte) { b[0][0] |= 0x80 }, 10},
		"a batch that wraps around":                  {func(b [][]byte) { binary.BigEndian.PutUint64(b[2], 1<<63-1) }, 14},
		"a batch that is longer than it is":          {func(b [][]byte) { b[2][lengthAt+3]++ }, 14},
		"a batch that is shorter than its header":    {func(b [][]byte) { b[1][lengthAt+3] = 7 }, 11},
		"a batch of another format":                  {func(b [][]byte) { b[1][magicAt] = 1 }, 11},
		"a byte of a record":                         {func(b [][]byte) { b[1][batchOverhead+5]++ }, 11},
		"a batch that is there twice":                {func(b [][]byte) { b[2] = bytes.Clone(b[1]) }, 11},
		"two batches that have changed their places": {func(b [][]byte) { b[1], b[2] = b[2], b[1] }, 11},
	} {
		t.Run(name, func(t *testing.T) {
			batches, from, end := logOf(t)
			c.change(batches)
			raw := bytes.Join(batches, nil)
			l, reached := followed(raw, from, end)
			if l.damage == nil && len(l.lost) == 0 { // cut off: fetched again, alone
				l = reached.follow(raw[l.bytes:], end, kgo.DefaultDecompressor())
			}
			for _, lost := range l.lost {
				l.damage = &damage{lost.first, lost.reason}
			}
			if l.damage == nil || l.damage.offset != c.want {
				t.Fatalf("damage is %+v, want it at offset %d", l.damage, c.want)
			}
		})
	}
}

// What is behind a batch that cannot be read is read, and the stretch is named.
func TestABatchThatCannotBeReadIsAStretchThatIsLost(t *testing.T) {
	for i, want := range []stretch{{first: 10, last: 10}, {first: 11, last: 19}, {first: 14, last: 21}} {
		batches, from, end := logOf(t)
		if i == 2 {
			want.first, batches = 20, [][]byte{batches[0], batches[1], batchAt(t, 14, logtest.Put("e", 1)), batchAt(t, 15, make5(t)...), batches[2]}
			i = 4
		}
		batches[i][batchOverhead+5] ^= 1
		l, c := followed(bytes.Join(batches, nil), from, end)
		for rest := bytes.Join(batches, nil)[l.bytes:]; l.damage == nil && len(rest) > 0; rest = bytes.Join(batches, nil)[l.bytes:] {
			more := c.follow(rest, end, kgo.DefaultDecompressor())
			l.damage, l.lost, l.bytes = more.damage, append(l.lost, more.lost...), l.bytes+more.bytes
		}
		if l.damage != nil || len(l.lost) != 1 || l.lost[0].first != want.first || l.lost[0].last != want.last || c.next != end {
			t.Errorf("batch %d: %+v, damage %+v, read to %d; want %+v", i, l.lost, l.damage, c.next, want)
		}
	}
}

// make5 are five records.
func make5(tb testing.TB) (all []txnlog.Record) {
	tb.Helper()
	for i := range 5 {
		all = append(all, logtest.Put("f", int64(i)))
	}
	return all
}

func TestWhatCompactionLeavesIsNoDamage(t *testing.T) {
	empty := new(batch).encode(producer{7, 1}, 5, 1) // Kafka keeps the last batch of a producer, empty
	binary.BigEndian.PutUint64(empty, 12)
	binary.BigEndian.PutUint32(empty[lastDeltaAt:], 3)
	binary.BigEndian.PutUint32(empty[crcAt:], crc32.Checksum(empty[crcStart:], crc32c))
	first := batchAt(t, 3, logtest.Put("a", 1), logtest.Put("b", 1), logtest.Put("c", 1)) // 3 and 4 are below the start
	l, c := followed(bytes.Join([][]byte{first, empty, batchAt(t, 40, logtest.Put("d", 1))}, nil), 5, 41)
	if l.damage != nil || c.next != 41 || len(l.records) != 2 || l.records[0].Offset != 5 || l.records[1].Offset != 40 {
		t.Fatalf("read %+v, %+v, damage %+v", l.records, c, l.damage)
	}
}

func TestABatchCutOffAtTheEndIsLeftForTheNextAnswer(t *testing.T) {
	batches, from, end := logOf(t)
	raw := bytes.Join(batches, nil)
	rapid.Check(t, func(t *rapid.T) {
		cut := rapid.IntRange(len(batches[0]), len(raw)-1).Draw(t, "cut")
		l, c := followed(raw[:cut], from, end)
		if l.damage != nil {
			t.Fatalf("damage %+v", l.damage)
		}
		rest := c.follow(raw[l.bytes:], end, kgo.DefaultDecompressor())
		if rest.damage != nil || c.next != end || len(l.records)+len(rest.records) != 6 {
			t.Fatalf("%d and %d records, %+v, damage %+v", len(l.records), len(rest.records), c, rest.damage)
		}
	})
}

func FuzzFollow(f *testing.F) {
	batches, from, end := logOf(f)
	f.Add(bytes.Join(batches, nil), from, end)
	f.Fuzz(func(t *testing.T, raw []byte, from, end int64) {
		l, c := followed(raw, from, end)
		next := from
		for _, r := range l.records {
			if r.Offset < next || r.Offset >= end {
				t.Fatalf("record %d, and %d comes next in a log that ends at %d", r.Offset, next, end)
			}
			next = r.Offset + 1
		}
		if l.damage == nil && len(raw) > 0 && l.bytes > 0 && c.next > end {
			t.Fatalf("read to %d of %d", c.next, end)
		}
	})
}
