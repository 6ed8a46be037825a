package topiclog

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

const (
	// batchOverhead is the size of the header of a record batch, which
	// counts towards max.message.bytes.
	batchOverhead = 61
	// crcStart is where the part of a batch begins that its CRC covers.
	crcStart = 21
	// lengthEnd is where the part begins that its length counts.
	lengthEnd = 12
)

var crc32c = crc32.MakeTable(crc32.Castagnoli)

// producer is what fences the owners of one partition from each other.
type producer struct {
	id    int64
	epoch int16
}

// batch is a record batch being filled. Its header is written when it is sent,
// because only then the producer epoch and the sequence are known.
type batch struct {
	records []byte
	count   int32
	dones   []func(error)
	// err fails the batch without writing it; everything behind it fails too.
	err error
	// keepAlive stands in the queue for the claim to be written again.
	keepAlive bool
}

// add appends one record of record format v2. All records of a batch have its
// timestamp.
func (b *batch) add(key, value []byte) {
	const attributes, timestampDelta, headers = 1, 1, 1 // one zero byte each
	n := attributes + timestampDelta + kbin.VarintLen(b.count) + bytesLen(key) + bytesLen(value) + headers
	r := kbin.AppendVarint(b.records, int32(n))
	r = append(r, 0, 0)
	r = kbin.AppendVarint(r, b.count)
	r = appendBytes(r, key)
	r = appendBytes(r, value)
	b.records = append(r, 0)
	b.count++
}

func bytesLen(b []byte) int {
	if b == nil {
		return kbin.VarintLen(-1)
	}
	return kbin.VarintLen(int32(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return kbin.AppendVarint(dst, -1)
	}
	return kbin.AppendVarintBytes(dst, b)
}

// addAll appends records of the log. On error the batch is as it was.
func (b *batch) addAll(records []txnlog.Record) error {
	size, count := len(b.records), b.count
	encoded := make([]byte, 0, 512) // on the stack: enough for most records
	for _, r := range records {
		key, err := txnlog.AppendKey(encoded[:0], r.GlobalTransactionalID)
		if err != nil {
			b.truncate(size, count)
			return err
		}
		encoded = key
		var value []byte
		if r.Value != nil {
			encoded = txnlog.AppendValue(key, r.Value)
			key, value = encoded[:len(key)], encoded[len(key):]
		}
		b.add(key, value)
	}
	return nil
}

func (b *batch) truncate(size int, count int32) { b.records, b.count = b.records[:size], count }

// encode returns the batch as a producer sends it: not transactional, with the
// producer's sequence, so that the broker checks both.
func (b *batch) encode(p producer, sequence int32, nowMillis int64) []byte {
	rb := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                2,
		LastOffsetDelta:      b.count - 1,
		FirstTimestamp:       nowMillis,
		MaxTimestamp:         nowMillis,
		ProducerID:           p.id,
		ProducerEpoch:        p.epoch,
		FirstSequence:        sequence,
		NumRecords:           b.count,
		Records:              b.records,
	}
	out := rb.AppendTo(make([]byte, 0, batchOverhead+len(b.records)))
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-lengthEnd))
	binary.BigEndian.PutUint32(out[crcStart-4:], crc32.Checksum(out[crcStart:], crc32c))
	return out
}

// claimBatch is a batch of one claim record.
func claimBatch(c txnlog.Claim) *batch {
	b := new(batch)
	b.add(txnlog.AppendClaimKey(nil), txnlog.AppendClaim(nil, &c))
	return b
}
