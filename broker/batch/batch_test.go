package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/kafka-gtc/kafka-gtc/broker/batch"
)

// latest is a version of Produce that takes everything.
const latest = 12

// form is a batch by its fields, so that a test can have one of them lie.
type form struct {
	kmsg.RecordBatch
	size     int32 // what is added to the length
	checksum uint32
	behind   []byte // bytes after the batch
}

// raw gives the batch with its length and checksum.
func (f form) raw() []byte {
	f.Length = int32(49+len(f.Records)) + f.size
	b := f.AppendTo(nil)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli))+f.checksum)
	return append(b, f.behind...)
}

// plain is a batch of n records as kgo would send it.
func plain(n int) form {
	f := form{RecordBatch: kmsg.RecordBatch{
		Magic: 2, LastOffsetDelta: int32(n - 1), NumRecords: int32(n), PartitionLeaderEpoch: -1,
		FirstTimestamp: 1000, MaxTimestamp: 1000 + int64(n-1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}}
	for i := range n {
		f.Records = record(f.Records, kmsg.Record{
			OffsetDelta: int32(i), TimestampDelta64: int64(i), Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", i),
			Headers: []kmsg.Header{{Key: "h", Value: []byte("v")}, {Key: "", Value: nil}},
		})
	}
	return f
}

// record adds a record behind its length.
func record(to []byte, r kmsg.Record) []byte {
	r.Length = 0
	body := r.AppendTo(nil)[1:]
	return append(binary.AppendVarint(to, int64(len(body))), body...)
}

// one is a batch of one record that is these bytes, behind their length.
func one(body ...byte) form {
	f := plain(1)
	f.Records = append(binary.AppendVarint(nil, int64(len(body))), body...)
	return f
}

func (f form) with(change func(*form)) form {
	f.Records = slices.Clone(f.Records)
	change(&f)
	return f
}

// compressed is the batch with other bytes for records.
func (f form) compressed(codec int16, records []byte) form {
	return f.with(func(f *form) { f.Attributes |= codec; f.Records = records })
}

func codecs(tb testing.TB) map[kgo.CompressionCodecType]kgo.Compressor {
	tb.Helper()
	all := make(map[kgo.CompressionCodecType]kgo.Compressor)
	for kind, codec := range map[kgo.CompressionCodecType]kgo.CompressionCodec{
		kgo.CodecGzip: kgo.GzipCompression(), kgo.CodecSnappy: kgo.SnappyCompression(),
		kgo.CodecLz4: kgo.Lz4Compression(), kgo.CodecZstd: kgo.ZstdCompression(),
	} {
		c, err := kgo.DefaultCompressor(codec)
		if err != nil {
			tb.Fatal(err)
		}
		all[kind] = c
	}
	return all
}

func squeeze(tb testing.TB, kind kgo.CompressionCodecType, raw []byte) []byte {
	tb.Helper()
	out, got := codecs(tb)[kind].Compress(new(bytes.Buffer), raw)
	if got != kind {
		tb.Fatalf("compressed with %d, want %d", got, kind)
	}
	return slices.Clone(out)
}

func TestEachFieldOfABatchIsChecked(t *testing.T) {
	two := plain(2)
	for name, c := range map[string]struct {
		batch form
		want  *kerr.Error
	}{
		"as it should be": {two, nil},
		"many":            {plain(1000), nil},

		"bytes behind it":           {two.with(func(f *form) { f.behind = []byte{0} }), kerr.InvalidRecord},
		"a second batch":            {two.with(func(f *form) { f.behind = plain(1).raw() }), kerr.InvalidRecord},
		"length one less":           {two.with(func(f *form) { f.size = -1 }), kerr.InvalidRecord},
		"length one more":           {two.with(func(f *form) { f.size = 1 }), kerr.CorruptMessage},
		"length negative":           {two.with(func(f *form) { f.size = math.MinInt32 }), kerr.CorruptMessage},
		"length too large":          {two.with(func(f *form) { f.size = math.MaxInt32 - 200 }), kerr.CorruptMessage},
		"length less than the head": {two.with(func(f *form) { f.size = int32(-len(f.Records) - 1) }), kerr.CorruptMessage},
		"magic 0":                   {two.with(func(f *form) { f.Magic = 0 }), kerr.InvalidRecord},
		"magic 1":                   {two.with(func(f *form) { f.Magic = 1 }), kerr.InvalidRecord},
		"magic 3":                   {two.with(func(f *form) { f.Magic = 3 }), kerr.InvalidRecord},
		"magic -1":                  {two.with(func(f *form) { f.Magic = -1 }), kerr.InvalidRecord},
		"checksum":                  {two.with(func(f *form) { f.checksum = 1 }), kerr.CorruptMessage},

		"base offset":  {two.with(func(f *form) { f.FirstOffset = 7 }), nil}, // overwritten
		"leader epoch": {two.with(func(f *form) { f.PartitionLeaderEpoch = math.MaxInt32 }), nil},

		"attributes: LogAppendTime":  {two.with(func(f *form) { f.Attributes = 0x08 }), kerr.InvalidTimestamp},
		"attributes: control":        {two.with(func(f *form) { f.Attributes = 0x20 }), kerr.InvalidRecord},
		"attributes: control of txn": {two.with(func(f *form) { f.Attributes = 0x30; f.ProducerID = 1 }), kerr.InvalidRecord},
		"attributes: delete horizon": {two.with(func(f *form) { f.Attributes = 0x40 }), kerr.InvalidRecord},
		"attributes: bit 7":          {two.with(func(f *form) { f.Attributes = 0x80 }), kerr.InvalidRecord},
		"attributes: bit 15":         {two.with(func(f *form) { f.Attributes = math.MinInt16 }), kerr.InvalidRecord},
		"attributes: all":            {two.with(func(f *form) { f.Attributes = -1 }), kerr.InvalidRecord},
		"compression 5":              {two.with(func(f *form) { f.Attributes = 5 }), kerr.UnsupportedCompressionType},
		"compression 7":              {two.with(func(f *form) { f.Attributes = 7 }), kerr.UnsupportedCompressionType},

		"no records":         {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta, f.Records = 0, -1, nil }), kerr.InvalidRecord},
		"count 0":            {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta = 0, -1 }), kerr.InvalidRecord},
		"count -1":           {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta = -1, -2 }), kerr.InvalidRecord},
		"count the least":    {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta = math.MinInt32, math.MaxInt32 }), kerr.InvalidRecord},
		"count the most":     {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta = math.MaxInt32, math.MaxInt32-1 }), kerr.InvalidRecord},
		"count one more":     {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta = 3, 2 }), kerr.InvalidRecord},
		"count one less":     {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta = 1, 0 }), kerr.InvalidRecord},
		"last offset more":   {two.with(func(f *form) { f.LastOffsetDelta = 2 }), kerr.InvalidRecord},
		"last offset less":   {two.with(func(f *form) { f.LastOffsetDelta = 0 }), kerr.InvalidRecord},
		"a million of none":  {two.with(func(f *form) { f.NumRecords, f.LastOffsetDelta, f.Records = 1e6, 1e6-1, nil }), kerr.InvalidRecord},
		"offsets twice":      {plain(1).with(func(f *form) { f.NumRecords, f.LastOffsetDelta, f.Records = 2, 1, append(f.Records, f.Records...) }), kerr.InvalidRecord},
		"offsets the others": {plain(1).with(func(f *form) { f.Records = record(nil, kmsg.Record{OffsetDelta: 1}) }), kerr.InvalidRecord},
		"offset negative":    {plain(1).with(func(f *form) { f.Records = record(nil, kmsg.Record{OffsetDelta: -1}) }), kerr.InvalidRecord},

		"no timestamp":          {plain(1).with(func(f *form) { f.FirstTimestamp, f.MaxTimestamp = -1, -1 }), nil},
		"first timestamp -2":    {plain(1).with(func(f *form) { f.FirstTimestamp = -2 }), kerr.InvalidTimestamp},
		"first timestamp least": {plain(1).with(func(f *form) { f.FirstTimestamp = math.MinInt64 }), kerr.InvalidTimestamp},
		"last timestamp most":   {plain(1).with(func(f *form) { f.MaxTimestamp = math.MaxInt64 }), kerr.InvalidTimestamp},
		"last timestamp -2":     {plain(1).with(func(f *form) { f.MaxTimestamp = -2 }), kerr.InvalidTimestamp},
		"year 2262":             {plain(1).with(func(f *form) { f.FirstTimestamp, f.MaxTimestamp = 9223372036854, 9223372036854 }), nil},
		"after it":              {plain(1).with(func(f *form) { f.MaxTimestamp = 9223372036855 }), kerr.InvalidTimestamp},
		"record before 1970":    {plain(1).with(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: -1002}) }), kerr.InvalidTimestamp},
		"record without time":   {plain(1).with(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: -1001}) }), nil},
		"record after it":       {plain(1).with(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: 9223372035855}) }), kerr.InvalidTimestamp},
		"record overflows":      {plain(1).with(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: math.MaxInt64}) }), kerr.InvalidTimestamp},
		"record overflows below": {plain(1).with(func(f *form) {
			f.FirstTimestamp = -1
			f.Records = record(nil, kmsg.Record{TimestampDelta64: math.MinInt64})
		}), kerr.InvalidTimestamp},

		"idempotent": {two.with(func(f *form) { f.ProducerID, f.ProducerEpoch, f.FirstSequence = 7, 0, 0 }), nil},
		"idempotent, most": {two.with(func(f *form) {
			f.ProducerID, f.ProducerEpoch, f.FirstSequence = math.MaxInt64, math.MaxInt16, math.MaxInt32
		}), nil},
		"transactional":           {two.with(func(f *form) { f.Attributes, f.ProducerID, f.ProducerEpoch, f.FirstSequence = 0x10, 7, 3, 9 }), nil},
		"transactional of nobody": {two.with(func(f *form) { f.Attributes = 0x10 }), kerr.InvalidRecord},
		"producer id -2":          {two.with(func(f *form) { f.ProducerID = -2 }), kerr.InvalidRecord},
		"producer without epoch":  {two.with(func(f *form) { f.ProducerID, f.FirstSequence = 7, 0 }), kerr.InvalidRecord},
		"producer without number": {two.with(func(f *form) { f.ProducerID, f.ProducerEpoch = 7, 0 }), kerr.InvalidRecord},
		"epoch of nobody":         {two.with(func(f *form) { f.ProducerEpoch, f.FirstSequence = 0, 0 }), nil}, // KafkaJS

		"empty record":              {one(0, 0, 0, 1, 1, 0), nil}, // neither key nor value
		"attributes of a record":    {one(0xff, 0, 0, 1, 1, 0), nil},
		"key of no bytes":           {one(0, 0, 0, 0, 0, 0), nil},
		"key length -2":             {one(0, 0, 0, 3, 1, 0), kerr.InvalidRecord},
		"value length -2":           {one(0, 0, 0, 1, 3, 0), kerr.InvalidRecord},
		"value beyond the end":      {one(0, 0, 0, 1, 8, 0), kerr.InvalidRecord},
		"headers -1":                {one(0, 0, 0, 1, 1, 1), kerr.InvalidRecord},
		"headers that are not":      {one(0, 0, 0, 1, 1, 2), kerr.InvalidRecord},
		"headers, two thousand mil": {one(0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f), kerr.InvalidRecord},
		"header without a name":     {one(0, 0, 0, 1, 1, 2, 1, 1), kerr.InvalidRecord},
		"header without value":      {one(0, 0, 0, 1, 1, 2, 0, 1), nil},
		"header value -2":           {one(0, 0, 0, 1, 1, 2, 0, 3), kerr.InvalidRecord},
		"more in the record":        {one(0, 0, 0, 1, 1, 0, 0), kerr.InvalidRecord},
		"number of six bytes":       {one(0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0x80, 0, 1, 0), kerr.InvalidRecord},
		"number of five bytes":      {one(0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0, 1, 0), nil},
		"number of eleven bytes":    {one(0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 1, 0), kerr.InvalidRecord},
		"length of a record less":   {plain(1).with(func(f *form) { f.Records[0] -= 2 }), kerr.InvalidRecord},
		"length of a record more":   {plain(1).with(func(f *form) { f.Records[0] += 2 }), kerr.InvalidRecord},
		"length of a record is -1":  {plain(1).with(func(f *form) { f.Records[0] = 1 }), kerr.InvalidRecord},
		"bytes behind the records":  {plain(1).with(func(f *form) { f.Records = append(f.Records, 0) }), kerr.InvalidRecord},
		"records cut off":           {two.with(func(f *form) { f.Records = f.Records[:len(f.Records)-1] }), kerr.InvalidRecord},
	} {
		t.Run(name, func(t *testing.T) { check(t, c.batch.raw(), latest, c.want) })
	}
	whole := two.raw()
	for n := range whole {
		if err := batch.Check(whole[:n], latest); err == nil {
			t.Errorf("the first %d of %d bytes are a batch", n, len(whole))
		}
	}
	check(t, nil, latest, kerr.InvalidRecord)
}

func check(t *testing.T, raw []byte, version int16, want *kerr.Error) {
	t.Helper()
	err := batch.Check(raw, version)
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

func TestCompressedRecordsAreOpened(t *testing.T) {
	// Larger than the window through which it is read, with a value that is.
	f := plain(300)
	f.NumRecords, f.LastOffsetDelta = 301, 300
	f.Records = record(f.Records, kmsg.Record{OffsetDelta: 300, Value: bytes.Repeat([]byte("0123456789"), 10_000)})
	for kind := range codecs(t) {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			packed := squeeze(t, kind, f.Records)
			whole := f.compressed(int16(kind), packed)
			check(t, whole.raw(), latest, nil)
			if kind == kgo.CodecZstd {
				check(t, whole.raw(), 6, kerr.UnsupportedCompressionType)
				check(t, whole.raw(), 7, nil)
			} else {
				check(t, whole.raw(), 3, nil)
			}
			for what, bad := range map[string][]byte{
				"nothing":           nil,
				"garbage":           []byte("this was never compressed, and is longer than a head"),
				"one byte":          {0x1f},
				"half":              packed[:len(packed)/2],
				"without its end":   packed[:len(packed)-1],
				"of another length": squeeze(t, kind, f.Records[:len(f.Records)-1]),
				"with more":         squeeze(t, kind, append(slices.Clone(f.Records), 0)),
				"of one record":     squeeze(t, kind, plain(1).Records),
				"not compressed":    f.Records,
			} {
				t.Run(what, func(t *testing.T) { check(t, f.compressed(int16(kind), bad).raw(), latest, kerr.InvalidRecord) })
			}
			for at := 0; at < len(packed); at += 1 + len(packed)/97 {
				changed := slices.Clone(packed)
				changed[at] ^= 0x55
				readable(t, f.compressed(int16(kind), changed).raw())
			}
		})
	}
	t.Run("snappy", func(t *testing.T) {
		block := s2.EncodeSnappy(nil, f.Records)
		xerial := []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}
		framed := func(blocks ...[]byte) []byte {
			out := slices.Clone(xerial)
			for _, b := range blocks {
				out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...)
			}
			return out
		}
		half := len(f.Records) / 2
		for name, c := range map[string]struct {
			records []byte
			want    *kerr.Error
		}{
			"one block":                  {block, nil},
			"framed":                     {framed(block), nil},
			"framed in two":              {framed(s2.EncodeSnappy(nil, f.Records[:half]), s2.EncodeSnappy(nil, f.Records[half:])), nil},
			"framed with an empty block": {framed(s2.EncodeSnappy(nil, nil), block), nil},
			"for a reader of version 0":  {append(slices.Clone(framed(block)[:15]), framed(block)[15+1:]...), kerr.InvalidRecord},
			"length of a block too long": {append(framed(block), 0, 0, 0, 9, 1), kerr.InvalidRecord},
			"length of a block cut off":  {append(framed(block), 0, 0), kerr.InvalidRecord},
			"claims more than it can":    {append(binary.AppendUvarint(nil, 15<<20), 1, 2, 3), kerr.InvalidRecord},
		} {
			t.Run(name, func(t *testing.T) { check(t, f.compressed(2, c.records).raw(), latest, c.want) })
		}
	})
}

// A batch of kilobytes that opens to hundreds of megabytes costs every reader.
func TestABatchOpensToALimit(t *testing.T) {
	for _, size := range []int{15 << 20, 17 << 20, 200 << 20} {
		want := kerr.MessageTooLarge
		if size < 16<<20 {
			want = nil
		}
		f := plain(1)
		body := record(nil, kmsg.Record{Value: make([]byte, size)})
		for kind := range codecs(t) {
			if kind == kgo.CodecSnappy {
				continue // which makes a batch of at least a twentieth
			}
			t.Run(fmt.Sprintf("%d MiB, codec %d", size>>20, kind), func(t *testing.T) {
				check(t, f.compressed(int16(kind), squeeze(t, kind, body)).raw(), latest, want)
			})
		}
	}
	t.Run("in relation to what came", func(t *testing.T) {
		// Half of it cannot be compressed, so that it opens to twice its size.
		value := make([]byte, 40<<20)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(value[:len(value)/2])
		f := plain(1)
		f.Records = squeeze(t, kgo.CodecGzip, record(nil, kmsg.Record{Value: value}))
		f.Attributes = 1
		if len(f.Records) < 3<<20 {
			t.Fatalf("it compresses to %d bytes", len(f.Records))
		}
		check(t, f.raw(), latest, nil)
	})
	t.Run("zstd of a large window", func(t *testing.T) {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]byte{plain(1).Records, nil} {
			if _, err = w.Write(part); err != nil {
				t.Fatal(err)
			}
			if err = w.Flush(); err != nil { // so that the frame does not know its size
				t.Fatal(err)
			}
		}
		if err = w.Close(); err != nil {
			t.Fatal(err)
		}
		check(t, plain(1).compressed(4, out.Bytes()).raw(), latest, kerr.MessageTooLarge)
	})
}

// readable holds Check against two readers: what it accepts is read by kgo and by
// kfake, to the number of records that the head says, one offset after the other.
func readable(tb rapid.TB, raw []byte) (accepted bool) {
	tb.Helper()
	if err := batch.Check(raw, latest); err != nil {
		var refused *batch.Error
		if !errors.As(err, &refused) || refused.Kafka == nil {
			tb.Fatalf("not an error for a client: %v", err)
		}
		return false
	}
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		tb.Fatalf("accepted, and kmsg: %v", err)
	}
	records, err := kfake.BatchRecords(b)
	if err != nil || len(records) != int(b.NumRecords) {
		tb.Fatalf("accepted, and kfake reads %d of %d records: %v", len(records), b.NumRecords, err)
	}
	if b.Attributes&0x10 != 0 {
		b.Attributes &^= 0x10 // kgo would wait for the end of the transaction
		raw = form{RecordBatch: b}.raw()
	}
	binary.BigEndian.PutUint64(raw, 0)
	p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &kmsg.FetchResponseTopicPartition{
		RecordBatches: raw, HighWatermark: math.MaxInt64, LastStableOffset: math.MaxInt64,
	}, kgo.DefaultDecompressor(), nil)
	if p.Err != nil || len(p.Records) != len(records) {
		tb.Fatalf("accepted, and kgo reads %d of %d records: %v", len(p.Records), len(records), p.Err)
	}
	for i, r := range p.Records {
		if r.Offset != int64(i) || !bytes.Equal(r.Value, records[i].Value) || !bytes.Equal(r.Key, records[i].Key) ||
			len(r.Headers) != len(records[i].Headers) || r.Timestamp.Before(time.UnixMilli(-1)) || r.Timestamp.UnixMilli() > 9223372036854 {
			tb.Fatalf("accepted, and record %d is %v for kgo and %v for kfake", i, r, records[i])
		}
	}
	return true
}

// Batches that are a little wrong, in the head, in the records or in their
// compressed form, with a checksum that matches.
func TestWhatIsAcceptedIsReadByAll(t *testing.T) {
	packers := codecs(t)
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		f := drawBatch(rt)
		records := f.Records
		if rapid.Bool().Draw(rt, "records lie") && len(records) > 0 {
			at := rapid.IntRange(0, len(records)-1).Draw(rt, "at")
			records[at] = rapid.Byte().Draw(rt, "byte")
		}
		if kind := kgo.CompressionCodecType(rapid.IntRange(0, 4).Draw(rt, "codec")); kind != kgo.CodecNone {
			packed, _ := packers[kind].Compress(new(bytes.Buffer), records)
			f.Attributes |= int16(kind)
			f.Records = slices.Clone(packed)
			if rapid.Bool().Draw(rt, "compressed form lies") && len(packed) > 0 {
				at := rapid.IntRange(0, len(packed)-1).Draw(rt, "at")
				f.Records[at] = rapid.Byte().Draw(rt, "byte")
			}
		}
		raw := f.raw()
		if rapid.Bool().Draw(rt, "head lies") {
			at := rapid.IntRange(21, 60).Draw(rt, "at")
			raw[at] = rapid.Byte().Draw(rt, "byte")
			binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
		if readable(rt, raw) {
			accepted++
		}
	})
	if accepted == 0 {
		t.Error("none was accepted")
	}
}

func drawBatch(rt *rapid.T) form {
	n := rapid.IntRange(1, 6).Draw(rt, "records")
	f := plain(n)
	f.FirstTimestamp = rapid.SampledFrom([]int64{-1, 0, 1000, time.Now().UnixMilli(), 9223372036854}).Draw(rt, "timestamp")
	if rapid.Bool().Draw(rt, "idempotent") {
		f.ProducerID = rapid.Int64Range(0, math.MaxInt64).Draw(rt, "producer id")
		f.ProducerEpoch = rapid.Int16Range(0, math.MaxInt16).Draw(rt, "epoch")
		f.FirstSequence = rapid.Int32Range(0, math.MaxInt32).Draw(rt, "sequence")
		if rapid.Bool().Draw(rt, "transactional") {
			f.Attributes |= 0x10
		}
	}
	f.Records = nil
	for i := range n {
		r := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: rapid.Int64Range(0, 100).Draw(rt, "delta")}
		if rapid.Bool().Draw(rt, "key") {
			r.Key = rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(rt, "key bytes")
		}
		if rapid.Bool().Draw(rt, "value") {
			r.Value = bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(rt, "value bytes"), rapid.IntRange(1, 300).Draw(rt, "times"))
		}
		for range rapid.IntRange(0, 3).Draw(rt, "headers") {
			r.Headers = append(r.Headers, kmsg.Header{Key: rapid.StringN(0, 10, 20).Draw(rt, "name"), Value: rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(rt, "of it")})
		}
		f.Records = record(f.Records, r)
	}
	return f
}

func FuzzCheck(f *testing.F) {
	f.Add(plain(3).raw())
	f.Add(plain(1).with(func(f *form) { f.Attributes, f.ProducerID, f.ProducerEpoch, f.FirstSequence = 0x10, 7, 3, 9 }).raw())
	for kind := range codecs(f) {
		f.Add(plain(3).compressed(int16(kind), squeeze(f, kind, plain(3).Records)).raw())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= 61 { // else no input would get past them
			raw = slices.Clone(raw)
			binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
			raw[16] = 2
			binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
		readable(t, raw)
	})
}

// BenchmarkCheck is what a Produce pays for it; the checksum alone is what kfake
// pays as well.
func BenchmarkCheck(b *testing.B) {
	f := plain(0)
	for i := range int32(145) {
		f.Records = record(f.Records, kmsg.Record{OffsetDelta: i, Value: bytes.Repeat([]byte{byte(i)}, 105)})
	}
	f.NumRecords, f.LastOffsetDelta = 145, 144
	run := func(name string, raw []byte, do func([]byte) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := do(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	check := func(raw []byte) error { return batch.Check(raw, latest) }
	run("checksum alone", f.raw(), func(raw []byte) error {
		if crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(raw[17:]) {
			return errors.New("corrupt")
		}
		return nil
	})
	run("uncompressed", f.raw(), check)
	for kind, name := range map[kgo.CompressionCodecType]string{kgo.CodecGzip: "gzip", kgo.CodecSnappy: "snappy", kgo.CodecLz4: "lz4", kgo.CodecZstd: "zstd"} {
		run(name, f.compressed(int16(kind), squeeze(b, kind, f.Records)).raw(), check)
	}
}
