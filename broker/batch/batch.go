// Package batch says whether the records of one partition in a Produce may be
// stored. kfake stores what it would not read again: it believes the numbers in
// the head of a batch, and never opens it. A batch that passes [Check] can be
// read by the next start and by every client.
//
// The errors are those of Kafka (ProduceRequest, LogValidator, DefaultRecord).
// What Kafka puts right in a batch (timestamp of the head, offsets) is either
// harmless as it came or refused, because nothing is rewritten here.
package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Where the fields of a batch are, in version 2 of the format.
const (
	lengthAt          = 8
	lengthEnd         = 12 // the length counts what follows it
	magicAt           = 16
	crcAt             = 17
	crcFrom           = 21
	attributesAt      = 21
	lastOffsetDeltaAt = 23
	firstTimestampAt  = 27
	maxTimestampAt    = 35
	producerIDAt      = 43
	producerEpochAt   = 51
	baseSequenceAt    = 53
	countAt           = 57
	headerBytes       = 61
)

// The attributes of a batch.
const (
	compression   = 0x07
	logAppendTime = 0x08
	transactional = 0x10
	control       = 0x20

	zstdFrom = 7 // the version of Produce that knows zstd
)

const (
	// noTimestamp is what a record without a timestamp has.
	noTimestamp = -1
	// maxTimestamp is the last one, in April 2262, that can be told in nanoseconds,
	// as Go's clients do: kgo takes a later one for a year in the past. A later
	// one is a mistake of units anyhow, which Kafka refuses because it is more
	// than message.timestamp.after.max.ms ahead.
	maxTimestamp = math.MaxInt64 / 1_000_000
)

// Error is a batch that must not be stored.
type Error struct {
	Kafka  *kerr.Error // what Kafka answers
	Reason string
}

func (e *Error) Error() string { return e.Kafka.Message + ": " + e.Reason }

func (e *Error) Unwrap() error { return e.Kafka }

func refuse(err *kerr.Error, format string, args ...any) error {
	return &Error{err, fmt.Sprintf(format, args...)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Check says why the records of a partition in a Produce of the version must not
// be stored, with an *[Error]; nil when they may.
func Check(records []byte, version int16) error {
	if err := checkFrame(records); err != nil {
		return err
	}
	h := parseHead(records)
	if err := h.check(version); err != nil {
		return err
	}
	return h.checkRecords(records[headerBytes:])
}

// Compressed says that Check will open the records, which takes time and memory.
func Compressed(records []byte) bool {
	return len(records) >= headerBytes && records[attributesAt+1]&compression != 0
}

// checkFrame looks for one whole batch.
func checkFrame(b []byte) error {
	if len(b) <= magicAt {
		return refuse(kerr.InvalidRecord, "a partition needs one record batch, and has %d bytes", len(b))
	}
	if magic := b[magicAt]; magic != 2 {
		return refuse(kerr.InvalidRecord, "the batch has magic %d, and Produce takes 2 only", magic)
	}
	size := int64(int32(binary.BigEndian.Uint32(b[lengthAt:]))) + lengthEnd
	switch {
	case size < headerBytes:
		return refuse(kerr.CorruptMessage, "a batch of %d bytes; its head alone has %d", size, headerBytes)
	case size > int64(len(b)):
		return refuse(kerr.CorruptMessage, "a batch of %d bytes, of which %d are there", size, len(b))
	case size < int64(len(b)):
		return refuse(kerr.InvalidRecord, "%d bytes follow the batch; a partition has exactly one", int64(len(b))-size)
	case crc32.Checksum(b[crcFrom:], castagnoli) != binary.BigEndian.Uint32(b[crcAt:]):
		return refuse(kerr.CorruptMessage, "the checksum of the batch does not match")
	}
	return nil
}

// head is the part of a batch that is never compressed.
type head struct {
	attributes                   uint16
	lastOffsetDelta              int32
	firstTimestamp, maxTimestamp int64
	producerID                   int64
	producerEpoch                int16
	baseSequence                 int32
	count                        int32
}

func parseHead(b []byte) head {
	be := binary.BigEndian
	return head{
		attributes:      be.Uint16(b[attributesAt:]),
		lastOffsetDelta: int32(be.Uint32(b[lastOffsetDeltaAt:])),
		firstTimestamp:  int64(be.Uint64(b[firstTimestampAt:])),
		maxTimestamp:    int64(be.Uint64(b[maxTimestampAt:])),
		producerID:      int64(be.Uint64(b[producerIDAt:])),
		producerEpoch:   int16(be.Uint16(b[producerEpochAt:])),
		baseSequence:    int32(be.Uint32(b[baseSequenceAt:])),
		count:           int32(be.Uint32(b[countAt:])),
	}
}

func (h head) codec() codec { return codec(h.attributes & compression) }

func (h head) check(version int16) error {
	const known = compression | logAppendTime | transactional | control
	switch {
	case h.attributes&control != 0:
		return refuse(kerr.InvalidRecord, "clients may not write control records")
	case h.attributes&logAppendTime != 0:
		return refuse(kerr.InvalidTimestamp, "a producer may not set the timestamp type to LogAppendTime")
	case h.attributes&^known != 0:
		return refuse(kerr.InvalidRecord, "the batch has attributes %#04x, of which a producer may set %#02x", h.attributes, compression|transactional)
	case h.codec() > zstdCodec:
		return refuse(kerr.UnsupportedCompressionType, "compression type %d is not known", h.codec())
	case h.codec() == zstdCodec && version < zstdFrom:
		return refuse(kerr.UnsupportedCompressionType, "zstd needs version %d of Produce", zstdFrom)
	case h.count <= 0:
		return refuse(kerr.InvalidRecord, "the batch says that it has %d records", h.count)
	case h.lastOffsetDelta != h.count-1:
		return refuse(kerr.InvalidRecord, "the batch says that it has %d records and that the last one is number %d", h.count, h.lastOffsetDelta)
	case !timestamp(h.firstTimestamp) || !timestamp(h.maxTimestamp):
		return refuse(kerr.InvalidTimestamp, "the timestamps %d and %d of the batch are not between %d and %d", h.firstTimestamp, h.maxTimestamp, noTimestamp, maxTimestamp)
	}
	return h.checkProducer()
}

// checkProducer does not look at epoch and sequence of a batch that has no
// producer id, nor does Kafka: KafkaJS says epoch 0 there, and sarama sequence 0.
func (h head) checkProducer() error {
	switch {
	case h.producerID < -1:
		return refuse(kerr.InvalidRecord, "the batch has producer id %d", h.producerID)
	case h.producerID < 0 && h.attributes&transactional != 0:
		return refuse(kerr.InvalidRecord, "a transactional batch needs a producer id")
	case h.producerID < 0:
		return nil
	case h.producerEpoch < 0:
		return refuse(kerr.InvalidRecord, "producer id %d comes with epoch %d", h.producerID, h.producerEpoch)
	case h.baseSequence < 0:
		return refuse(kerr.InvalidRecord, "producer id %d comes with sequence %d", h.producerID, h.baseSequence)
	}
	return nil
}

func timestamp(t int64) bool { return t >= noTimestamp && t <= maxTimestamp }
