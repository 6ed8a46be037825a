// Package batchtest makes record batches for tests, and such as are a little
// wrong.
package batchtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// Form is a batch by its fields, so that a test can have one of them lie.
type Form struct {
	kmsg.RecordBatch
	Size     int32  // what is added to the length
	Checksum uint32 // what is added to it
	Behind   []byte // bytes after the batch
}

// Raw gives the batch with its length and checksum.
func (f Form) Raw() []byte {
	f.Length = int32(49+len(f.Records)) + f.Size
	b := f.AppendTo(nil)
	binary.BigEndian.PutUint32(b[17:], Checksum(b)+f.Checksum)
	return append(b, f.Behind...)
}

// Plain is a batch of n records as kgo would send it.
func Plain(n int) Form {
	f := Form{RecordBatch: kmsg.RecordBatch{
		Magic: 2, LastOffsetDelta: int32(n - 1), NumRecords: int32(n), PartitionLeaderEpoch: -1,
		FirstTimestamp: 1000, MaxTimestamp: 1000 + int64(n-1), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}}
	for i := range n {
		f.Records = Record(f.Records, kmsg.Record{
			OffsetDelta: int32(i), TimestampDelta64: int64(i), Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", i),
			Headers: []kmsg.Header{{Key: "h", Value: []byte("v")}, {Key: "", Value: nil}},
		})
	}
	return f
}

// Record adds a record behind its length.
func Record(to []byte, r kmsg.Record) []byte {
	r.Length = 0
	body := r.AppendTo(nil)[1:]
	return append(binary.AppendVarint(to, int64(len(body))), body...)
}

// One is a batch of one record that is these bytes, behind their length.
func One(body ...byte) Form {
	f := Plain(1)
	f.Records = append(binary.AppendVarint(nil, int64(len(body))), body...)
	return f
}

// With is a copy of the batch with a change.
func (f Form) With(change func(*Form)) Form {
	f.Records = slices.Clone(f.Records)
	change(&f)
	return f
}

// Compressed is the batch with other bytes for records.
func (f Form) Compressed(codec kgo.CompressionCodecType, records []byte) Form {
	return f.With(func(f *Form) { f.Attributes |= int16(codec); f.Records = records })
}

// Checksum is the checksum that belongs to a batch.
func Checksum(batch []byte) uint32 {
	return crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli))
}

// Codecs are those of Kafka.
var Codecs = map[kgo.CompressionCodecType]kgo.CompressionCodec{
	kgo.CodecGzip: kgo.GzipCompression(), kgo.CodecSnappy: kgo.SnappyCompression(),
	kgo.CodecLz4: kgo.Lz4Compression(), kgo.CodecZstd: kgo.ZstdCompression(),
}

// Compress gives the compressed form of records.
func Compress(kind kgo.CompressionCodecType, raw []byte) []byte {
	if kind == kgo.CodecNone {
		return raw
	}
	c, err := kgo.DefaultCompressor(Codecs[kind])
	if err != nil {
		panic(err) // the codec is one of kgo's
	}
	out, _ := c.Compress(new(bytes.Buffer), raw)
	return slices.Clone(out)
}

// Draw is a batch that may lie, in the head, in the records or in their compressed
// form. Its checksum matches.
func Draw(rt *rapid.T) []byte {
	f := draw(rt)
	lie := func(what string, b []byte) {
		if len(b) > 0 && rapid.IntRange(0, 2).Draw(rt, what+" lies") == 0 {
			b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
		}
	}
	lie("a record", f.Records)
	kind := kgo.CompressionCodecType(rapid.IntRange(0, 4).Draw(rt, "codec"))
	f = f.Compressed(kind, Compress(kind, f.Records))
	if kind != kgo.CodecNone {
		lie("compressed form", f.Records)
	}
	raw := f.Raw()
	lie("the head", raw[21:61])
	binary.BigEndian.PutUint32(raw[17:], Checksum(raw))
	return raw
}

func draw(rt *rapid.T) Form {
	n := rapid.IntRange(1, 6).Draw(rt, "records")
	f := Plain(n)
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
		f.Records = Record(f.Records, r)
	}
	return f
}
