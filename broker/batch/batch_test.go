package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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
	"github.com/kafka-gtc/kafka-gtc/broker/internal/batchtest"
)

type form = batchtest.Form

var plain, record, one, squeeze = batchtest.Plain, batchtest.Record, batchtest.One, batchtest.Compress

// latest is a version of Produce that takes everything.
const latest = 12

func TestEachFieldOfABatchIsChecked(t *testing.T) {
	two := plain(2)
	for name, c := range map[string]struct {
		batch form
		want  *kerr.Error
	}{
		"as it should be": {two, nil},
		"many":            {plain(1000), nil},

		"bytes behind it":           {two.With(func(f *form) { f.Behind = []byte{0} }), kerr.InvalidRecord},
		"a second batch":            {two.With(func(f *form) { f.Behind = plain(1).Raw() }), kerr.InvalidRecord},
		"length one less":           {two.With(func(f *form) { f.Size = -1 }), kerr.InvalidRecord},
		"length one more":           {two.With(func(f *form) { f.Size = 1 }), kerr.CorruptMessage},
		"length negative":           {two.With(func(f *form) { f.Size = math.MinInt32 }), kerr.CorruptMessage},
		"length too large":          {two.With(func(f *form) { f.Size = math.MaxInt32 - 200 }), kerr.CorruptMessage},
		"length less than the head": {two.With(func(f *form) { f.Size = int32(-len(f.Records) - 1) }), kerr.CorruptMessage},
		"magic 0":                   {two.With(func(f *form) { f.Magic = 0 }), kerr.InvalidRecord},
		"magic 1":                   {two.With(func(f *form) { f.Magic = 1 }), kerr.InvalidRecord},
		"magic 3":                   {two.With(func(f *form) { f.Magic = 3 }), kerr.InvalidRecord},
		"magic -1":                  {two.With(func(f *form) { f.Magic = -1 }), kerr.InvalidRecord},
		"checksum":                  {two.With(func(f *form) { f.Checksum = 1 }), kerr.CorruptMessage},

		"base offset":  {two.With(func(f *form) { f.FirstOffset = 7 }), nil}, // overwritten
		"leader epoch": {two.With(func(f *form) { f.PartitionLeaderEpoch = math.MaxInt32 }), nil},

		"attributes: LogAppendTime":  {two.With(func(f *form) { f.Attributes = 0x08 }), kerr.InvalidTimestamp},
		"attributes: control":        {two.With(func(f *form) { f.Attributes = 0x20 }), kerr.InvalidRecord},
		"attributes: control of txn": {two.With(func(f *form) { f.Attributes = 0x30; f.ProducerID = 1 }), kerr.InvalidRecord},
		"attributes: delete horizon": {two.With(func(f *form) { f.Attributes = 0x40 }), kerr.InvalidRecord},
		"attributes: bit 7":          {two.With(func(f *form) { f.Attributes = 0x80 }), kerr.InvalidRecord},
		"attributes: bit 15":         {two.With(func(f *form) { f.Attributes = math.MinInt16 }), kerr.InvalidRecord},
		"attributes: all":            {two.With(func(f *form) { f.Attributes = -1 }), kerr.InvalidRecord},
		"compression 5":              {two.With(func(f *form) { f.Attributes = 5 }), kerr.UnsupportedCompressionType},
		"compression 7":              {two.With(func(f *form) { f.Attributes = 7 }), kerr.UnsupportedCompressionType},

		"no records":         {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta, f.Records = 0, -1, nil }), kerr.InvalidRecord},
		"count 0":            {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta = 0, -1 }), kerr.InvalidRecord},
		"count -1":           {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta = -1, -2 }), kerr.InvalidRecord},
		"count the least":    {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta = math.MinInt32, math.MaxInt32 }), kerr.InvalidRecord},
		"count the most":     {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta = math.MaxInt32, math.MaxInt32-1 }), kerr.InvalidRecord},
		"count one more":     {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta = 3, 2 }), kerr.InvalidRecord},
		"count one less":     {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta = 1, 0 }), kerr.InvalidRecord},
		"last offset more":   {two.With(func(f *form) { f.LastOffsetDelta = 2 }), kerr.InvalidRecord},
		"last offset less":   {two.With(func(f *form) { f.LastOffsetDelta = 0 }), kerr.InvalidRecord},
		"a million of none":  {two.With(func(f *form) { f.NumRecords, f.LastOffsetDelta, f.Records = 1e6, 1e6-1, nil }), kerr.InvalidRecord},
		"offsets twice":      {plain(1).With(func(f *form) { f.NumRecords, f.LastOffsetDelta, f.Records = 2, 1, append(f.Records, f.Records...) }), kerr.InvalidRecord},
		"offsets the others": {plain(1).With(func(f *form) { f.Records = record(nil, kmsg.Record{OffsetDelta: 1}) }), kerr.InvalidRecord},
		"offset negative":    {plain(1).With(func(f *form) { f.Records = record(nil, kmsg.Record{OffsetDelta: -1}) }), kerr.InvalidRecord},

		"no timestamp":          {plain(1).With(func(f *form) { f.FirstTimestamp, f.MaxTimestamp = -1, -1 }), nil},
		"first timestamp -2":    {plain(1).With(func(f *form) { f.FirstTimestamp = -2 }), kerr.InvalidTimestamp},
		"first timestamp least": {plain(1).With(func(f *form) { f.FirstTimestamp = math.MinInt64 }), kerr.InvalidTimestamp},
		"last timestamp most":   {plain(1).With(func(f *form) { f.MaxTimestamp = math.MaxInt64 }), kerr.InvalidTimestamp},
		"last timestamp -2":     {plain(1).With(func(f *form) { f.MaxTimestamp = -2 }), kerr.InvalidTimestamp},
		"year 2262":             {plain(1).With(func(f *form) { f.FirstTimestamp, f.MaxTimestamp = 9223372036854, 9223372036854 }), nil},
		"after it":              {plain(1).With(func(f *form) { f.MaxTimestamp = 9223372036855 }), kerr.InvalidTimestamp},
		"record before 1970":    {plain(1).With(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: -1002}) }), kerr.InvalidTimestamp},
		"record without time":   {plain(1).With(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: -1001}) }), nil},
		"record after it":       {plain(1).With(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: 9223372035855}) }), kerr.InvalidTimestamp},
		"record overflows":      {plain(1).With(func(f *form) { f.Records = record(nil, kmsg.Record{TimestampDelta64: math.MaxInt64}) }), kerr.InvalidTimestamp},
		"record overflows below": {plain(1).With(func(f *form) {
			f.FirstTimestamp = -1
			f.Records = record(nil, kmsg.Record{TimestampDelta64: math.MinInt64})
		}), kerr.InvalidTimestamp},

		"idempotent": {two.With(func(f *form) { f.ProducerID, f.ProducerEpoch, f.FirstSequence = 7, 0, 0 }), nil},
		"idempotent, most": {two.With(func(f *form) {
			f.ProducerID, f.ProducerEpoch, f.FirstSequence = math.MaxInt64, math.MaxInt16, math.MaxInt32
		}), nil},
		"transactional":           {two.With(func(f *form) { f.Attributes, f.ProducerID, f.ProducerEpoch, f.FirstSequence = 0x10, 7, 3, 9 }), nil},
		"transactional of nobody": {two.With(func(f *form) { f.Attributes = 0x10 }), kerr.InvalidRecord},
		"producer id -2":          {two.With(func(f *form) { f.ProducerID = -2 }), kerr.InvalidRecord},
		"producer without epoch":  {two.With(func(f *form) { f.ProducerID, f.FirstSequence = 7, 0 }), kerr.InvalidRecord},
		"producer without number": {two.With(func(f *form) { f.ProducerID, f.ProducerEpoch = 7, 0 }), kerr.InvalidRecord},
		"epoch of nobody":         {two.With(func(f *form) { f.ProducerEpoch, f.FirstSequence = 0, 0 }), nil}, // KafkaJS

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
		"length of a record less":   {plain(1).With(func(f *form) { f.Records[0] -= 2 }), kerr.InvalidRecord},
		"length of a record more":   {plain(1).With(func(f *form) { f.Records[0] += 2 }), kerr.InvalidRecord},
		"length of a record is -1":  {plain(1).With(func(f *form) { f.Records[0] = 1 }), kerr.InvalidRecord},
		"bytes behind the records":  {plain(1).With(func(f *form) { f.Records = append(f.Records, 0) }), kerr.InvalidRecord},
		"records cut off":           {two.With(func(f *form) { f.Records = f.Records[:len(f.Records)-1] }), kerr.InvalidRecord},
	} {
		t.Run(name, func(t *testing.T) { check(t, c.batch.Raw(), latest, c.want) })
	}
	whole := two.Raw()
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
	for kind := range batchtest.Codecs {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			packed := squeeze(kind, f.Records)
			whole := f.Compressed(kind, packed)
			check(t, whole.Raw(), latest, nil)
			if kind == kgo.CodecZstd {
				check(t, whole.Raw(), 6, kerr.UnsupportedCompressionType)
				check(t, whole.Raw(), 7, nil)
			} else {
				check(t, whole.Raw(), 3, nil)
			}
			for what, bad := range map[string][]byte{
				"nothing":           nil,
				"garbage":           []byte("this was never compressed, and is longer than a head"),
				"one byte":          {0x1f},
				"half":              packed[:len(packed)/2],
				"without its end":   packed[:len(packed)-1],
				"of another length": squeeze(kind, f.Records[:len(f.Records)-1]),
				"with more":         squeeze(kind, append(slices.Clone(f.Records), 0)),
				"of one record":     squeeze(kind, plain(1).Records),
				"not compressed":    f.Records,
			} {
				t.Run(what, func(t *testing.T) { check(t, f.Compressed(kind, bad).Raw(), latest, kerr.InvalidRecord) })
			}
			for at := 0; at < len(packed); at += 1 + len(packed)/97 {
				changed := slices.Clone(packed)
				changed[at] ^= 0x55
				readable(t, f.Compressed(kind, changed).Raw())
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
			t.Run(name, func(t *testing.T) { check(t, f.Compressed(2, c.records).Raw(), latest, c.want) })
		}
	})
}

// A batch of kilobytes that opens to hundreds of megabytes costs every reader.
func TestABatchOpensToALimit(t *testing.T) {
	for _, size := range []int{15 << 20, 17 << 20, 40 << 20} {
		want := kerr.MessageTooLarge
		if size < 16<<20 {
			want = nil
		}
		f := plain(1)
		body := record(nil, kmsg.Record{Value: make([]byte, size)})
		for kind := range batchtest.Codecs {
			if kind == kgo.CodecSnappy {
				continue // which makes a batch of at least a twentieth
			}
			t.Run(fmt.Sprintf("%d MiB, codec %d", size>>20, kind), func(t *testing.T) {
				check(t, f.Compressed(kind, squeeze(kind, body)).Raw(), latest, want)
			})
		}
	}
	t.Run("in relation to what came", func(t *testing.T) {
		// Half of it cannot be compressed, so that it opens to twice its size.
		value := make([]byte, 40<<20)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(value[:len(value)/2])
		f := plain(1)
		f.Records = squeeze(kgo.CodecGzip, record(nil, kmsg.Record{Value: value}))
		f.Attributes = 1
		if len(f.Records) < 3<<20 {
			t.Fatalf("it compresses to %d bytes", len(f.Records))
		}
		check(t, f.Raw(), latest, nil)
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
		check(t, plain(1).Compressed(4, out.Bytes()).Raw(), latest, kerr.MessageTooLarge)
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
		binary.BigEndian.PutUint16(raw[21:], uint16(b.Attributes))
		binary.BigEndian.PutUint32(raw[17:], batchtest.Checksum(raw))
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

func TestWhatIsAcceptedIsReadByAll(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		if readable(rt, batchtest.Draw(rt)) {
			accepted++
		}
	})
	if accepted == 0 {
		t.Error("none was accepted")
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(plain(3).Raw())
	f.Add(plain(1).With(func(f *form) { f.Attributes, f.ProducerID, f.ProducerEpoch, f.FirstSequence = 0x10, 7, 3, 9 }).Raw())
	for kind := range batchtest.Codecs {
		f.Add(plain(3).Compressed(kind, squeeze(kind, plain(3).Records)).Raw())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= 61 { // else no input would get past them
			raw = slices.Clone(raw)
			binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
			raw[16] = 2
			binary.BigEndian.PutUint32(raw[17:], batchtest.Checksum(raw))
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
	run("checksum alone", f.Raw(), func(raw []byte) error {
		if batchtest.Checksum(raw) != binary.BigEndian.Uint32(raw[17:]) {
			return errors.New("corrupt")
		}
		return nil
	})
	run("uncompressed", f.Raw(), check)
	for kind, name := range map[kgo.CompressionCodecType]string{kgo.CodecGzip: "gzip", kgo.CodecSnappy: "snappy", kgo.CodecLz4: "lz4", kgo.CodecZstd: "zstd"} {
		run(name, f.Compressed(kind, squeeze(kind, f.Records)).Raw(), check)
	}
}
