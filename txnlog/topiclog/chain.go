package topiclog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// chain follows the batches of a partition from one to the next. The CRC of a batch
// does not cover its first bytes, the base offset among them, so a reader that
// believes them can be made to pass over a decision: with one bit of a base offset
// changed at rest, the batch seems to lie below what was asked for. What can be
// relied on is the order: a batch begins where the one before it ends, or behind,
// where compaction has left a gap.
type chain struct {
	next   int64 // the lowest offset that the next batch may begin at
	before int64 // the same, of the batch before
	// midway: the first batch may begin below next, because the log may begin in the
	// middle of a batch.
	midway bool
}

// damage is a place in a partition that no broker can have written.
type damage struct {
	offset int64
	reason string
}

// links are the records of the batches in an answer.
type links struct {
	records []txnlog.RawRecord
	bytes   int // of whole batches
	// lost are stretches that cannot be read, between those that can.
	lost []stretch
	// damage is where nothing behind can be followed.
	damage *damage
}

type stretch struct {
	first, last int64
	reason      string
}

var errCutOff = errors.New("the batch is longer than what is there of it")

// follow reads the whole batches at the front of raw, which lie below end, the
// log's. A batch cut off at the end is left for the next call, but for the first: a
// broker answers with one whole batch at least.
func (c *chain) follow(raw []byte, end int64, decompressor kgo.Decompressor) links {
	var l links
	for l.bytes < len(raw) {
		here := raw[l.bytes:]
		b, err := parseBatch(here)
		if errors.Is(err, errCutOff) && l.bytes > 0 {
			return l
		}
		if err == nil {
			if l.damage = c.link(b, end); l.damage != nil {
				return l
			}
			kept := len(l.records)
			if l.records, err = b.appendRecords(l.records, decompressor, c.next); err != nil {
				l.records = l.records[:kept]
			}
		}
		if err != nil {
			size, last, ok := c.over(here, end)
			switch {
			case !ok && l.bytes > 0:
				return l // again, with more behind it
			case !ok:
				l.damage = &damage{c.next, err.Error()}
				return l
			}
			l.lost = append(l.lost, stretch{c.next, last, err.Error()})
			b.size, b.last = size, last
		}
		l.bytes += b.size
		c.before, c.next, c.midway = c.next, b.last+1, false
	}
	return l
}

// over finds the batch behind one that cannot be read. Its length, which may be what
// is damaged, has to lead to a batch that can be read, or its header to agree with
// where it lies when nothing is behind it.
func (c *chain) over(raw []byte, end int64) (size int, last int64, ok bool) {
	if len(raw) < batchOverhead {
		return 0, 0, false
	}
	length := int64(int32(binary.BigEndian.Uint32(raw[lengthAt:]))) + lengthEnd
	if length < batchOverhead || length > int64(len(raw)) {
		return 0, 0, false
	}
	if next, err := parseBatch(raw[length:]); err == nil {
		return int(length), next.base - 1, next.base > c.next && next.last < end
	}
	base, delta := int64(binary.BigEndian.Uint64(raw)), int32(binary.BigEndian.Uint32(raw[lastDeltaAt:]))
	last = base + int64(delta)
	return int(length), last, length == int64(len(raw)) && base == c.next && delta >= 0 && last < end
}

// link tells whether a batch may come next. When one lies too low, the one before
// may be what is damaged: then this one would have its place without it.
func (c *chain) link(b batchView, end int64) *damage {
	switch {
	case b.base < c.next && !c.midway && b.base >= c.before && c.before < c.next:
		return &damage{c.before, fmt.Sprintf("the batch there says that it ends at offset %d, but the next one begins at %d", c.next-1, b.base)}
	case b.base < c.next && !c.midway, b.base < 0, b.last < c.next:
		return &damage{c.next, fmt.Sprintf("the batch there says that it begins at offset %d, but the one before it ends at %d", b.base, c.next-1)}
	case b.last >= end:
		return &damage{c.next, fmt.Sprintf("the batch there says that it ends at offset %d, but the log ends at %d", b.last, end-1)}
	}
	return nil
}

// Offsets of fields in the header of a batch, and the bits of its attributes.
const (
	lengthAt     = 8
	magicAt      = 16
	crcAt        = 17
	attributesAt = 21
	lastDeltaAt  = 23
	producerAt   = 43
	epochAt      = 51
	countAt      = 57

	attrCompression   = 0x7
	attrTransactional = 1 << 4
	attrControl       = 1 << 5

	markerKey = 4 // version and kind
)

// batchView is one whole batch with a correct CRC.
type batchView struct {
	base, last int64
	size       int
	producer   producer
	attributes int16
	count      int32
	records    []byte // as they stand there
}

// parseBatch reads the header of the batch at the front of raw and checks what the
// batch says of itself.
func parseBatch(raw []byte) (batchView, error) {
	if len(raw) <= magicAt {
		return batchView{}, errCutOff
	}
	if magic := raw[magicAt]; magic != 2 {
		return batchView{}, fmt.Errorf("the batch has magic %d, and the log has 2 only", magic)
	}
	length := int64(int32(binary.BigEndian.Uint32(raw[lengthAt:])))
	size := length + lengthEnd
	switch {
	case size < batchOverhead:
		return batchView{}, fmt.Errorf("the batch says that it has %d bytes, fewer than its header", size)
	case size > int64(len(raw)):
		return batchView{}, errCutOff
	}
	raw = raw[:size]
	if crc32.Checksum(raw[crcStart:], crc32c) != binary.BigEndian.Uint32(raw[crcAt:]) {
		return batchView{}, errors.New("the checksum of the batch does not match")
	}
	base, lastDelta := int64(binary.BigEndian.Uint64(raw)), int32(binary.BigEndian.Uint32(raw[lastDeltaAt:]))
	b := batchView{
		base: base, last: base + int64(lastDelta), size: int(size),
		producer:   producer{int64(binary.BigEndian.Uint64(raw[producerAt:])), int16(binary.BigEndian.Uint16(raw[epochAt:]))},
		attributes: int16(binary.BigEndian.Uint16(raw[attributesAt:])),
		count:      int32(binary.BigEndian.Uint32(raw[countAt:])),
		records:    raw[batchOverhead:],
	}
	switch {
	case lastDelta < 0 || b.last < base: // a base offset near 2^63 wraps around
		return b, fmt.Errorf("the batch says that its last record is %d behind its first, at %d", lastDelta, base)
	case b.count < 0 || int64(b.count) > int64(lastDelta)+1:
		return b, fmt.Errorf("the batch says that it has %d records in %d offsets", b.count, int64(lastDelta)+1)
	case b.attributes&attrControl != 0 && b.attributes&attrTransactional == 0:
		return b, errors.New("the batch says that it is the marker of a transaction, and that it is of none")
	}
	return b, nil
}

// appendRecords reads the records at or above offset from. Those of markers of
// strangers' transactions, which say nothing, are left out. What the batch says must
// be what it holds: a smaller count would hide the records behind.
func (b *batchView) appendRecords(dst []txnlog.RawRecord, decompressor kgo.Decompressor, from int64) ([]txnlog.RawRecord, error) {
	in := b.records
	if codec := b.attributes & attrCompression; codec != 0 {
		var err error
		if in, err = decompressor.Decompress(in, kgo.CompressionCodecType(codec)); err != nil {
			return dst, fmt.Errorf("decompressing the batch: %w", err)
		}
	}
	control, last := b.attributes&attrControl != 0, int32(-1)
	for i := range b.count {
		n, used := kbin.Varint(in)
		if used <= 0 || n < 0 || int(n) > len(in)-used {
			return dst, fmt.Errorf("record %d of the batch is cut off; it says that there are %d", i, b.count)
		}
		r := kbin.Reader{Src: in[used : used+int(n)]}
		in = in[used+int(n):]
		r.Int8() // attributes, of which there are none
		r.Varlong()
		delta := r.Varint()
		key, value := r.VarintBytes(), r.VarintBytes()
		for range max(0, r.VarintArrayLen()) {
			if r.VarintBytes(); !r.Ok() {
				break
			}
			r.VarintBytes()
		}
		offset := b.base + int64(delta)
		switch {
		case !r.Ok() || len(r.Src) > 0:
			return dst, fmt.Errorf("record %d of the batch does not have the length that it says", i)
		case delta <= last || offset > b.last:
			return dst, fmt.Errorf("record %d of the batch says that it is %d behind the first, of which the one before is %d and the last %d", i, delta, last, b.last-b.base)
		}
		last = delta
		if control && len(key) != markerKey {
			return dst, fmt.Errorf("record %d of the batch has a key of %d bytes, and the batch says that it is the marker of a transaction", i, len(key))
		}
		if control || offset < from {
			continue
		}
		dst = append(dst, txnlog.RawRecord{
			Offset: offset, ProducerID: b.producer.id, ProducerEpoch: b.producer.epoch, Key: key, Value: value,
		})
	}
	if len(in) > 0 {
		return dst, fmt.Errorf("the batch says that it has %d records, and %d bytes follow them", b.count, len(in))
	}
	return dst, nil
}
