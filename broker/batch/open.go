package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"
)

// codec is how the records of a batch are compressed.
type codec int8

const (
	uncompressed codec = iota
	gzipCodec
	snappyCodec
	lz4Codec
	zstdCodec
)

func (c codec) String() string {
	return [...]string{"none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7"}[c]
}

// What a batch may open to. Kafka's limit is for each record and by default none
// (max.decompressed.message.bytes). 800 MiB in a batch of 800 kB are opened by each
// consumer and, for ListOffsets by time, by kfake itself, for which everybody
// waits. The answer beyond is MESSAGE_TOO_LARGE, after which
// Kafka's producer sends the records in two batches.
const (
	openedFactor = 16       // times the size of the batch
	openedLeast  = 16 << 20 // but so much in any case
	openedMost   = 128 << 20
	// zstdWindow is how far back a zstd frame may refer, and the memory that it
	// takes: what every decoder has to have (RFC 8878), and compression levels
	// up to 19 need.
	zstdWindow = 8 << 20
)

func opened(size int) int64 {
	return int64(min(max(openedFactor*size, openedLeast), openedMost))
}

func doesNotOpen(c codec, err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, errTooMuch) {
		return refuse(kerr.MessageTooLarge, "opening the batch takes too much memory (%s)", c)
	}
	return refuse(kerr.InvalidRecord, "the records do not open (%s): %v", c, err)
}

// decoders are kept, by codec: each has some tens of KiB.
var decoders = [...]sync.Pool{
	gzipCodec: {New: func() any { return new(gzip.Reader) }},
	lz4Codec:  {New: func() any { return lz4.NewReader(nil) }},
	zstdCodec: {New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			panic(err) // the options are wrong
		}
		return d
	}},
}

// open gives the records as they are opened. They come from the same libraries
// with which kfake and kgo open them.
func (c codec) open(raw []byte) (in io.Reader, release func(), err error) {
	if c == snappyCodec {
		in, err = openSnappy(raw)
		return in, func() {}, err
	}
	d := decoders[c].Get()
	release = func() { decoders[c].Put(d) }
	src := bytes.NewReader(raw)
	switch d := d.(type) {
	case *gzip.Reader:
		in, err = d, d.Reset(src)
	case *lz4.Reader:
		d.Reset(src)
		in = d
	case *zstd.Decoder:
		in, err = d, d.Reset(src)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return in, release, nil
}

// xerialMagic begins what Kafka's own clients write; the versions of the writer
// and of the oldest reader follow. Other clients write a plain block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHead = 16

func openSnappy(raw []byte) (io.Reader, error) {
	limit := opened(len(raw))
	if len(raw) <= xerialHead || !bytes.HasPrefix(raw, xerialMagic) {
		block, err := snappyBlock(nil, raw, limit)
		return bytes.NewReader(block), err
	}
	if oldest := binary.BigEndian.Uint32(raw[12:]); oldest < 1 {
		return nil, fmt.Errorf("it is for readers of version %d", oldest)
	}
	return &xerial{raw: raw[xerialHead:], limit: limit}, nil
}

// snappyFactor is more than snappy can compress: three bytes stand for 64.
const snappyFactor = 32

// snappyBlock opens one block, which says itself how long it is.
func snappyBlock(into, block []byte, limit int64) ([]byte, error) {
	size, err := snappy.DecodedLen(block)
	switch {
	case err != nil:
		return nil, err
	case size > snappyFactor*len(block):
		return nil, snappy.ErrCorrupt
	case int64(size) > limit:
		return nil, errTooMuch
	}
	return snappy.DecodeStrict(into, block)
}

// xerial reads blocks of snappy behind their lengths.
type xerial struct {
	raw   []byte
	limit int64
	block []byte // what of the present one has not been read
	into  []byte
}

func (x *xerial) Read(p []byte) (int, error) {
	for len(x.block) == 0 {
		if len(x.raw) == 0 {
			return 0, io.EOF
		}
		if len(x.raw) < 4 {
			return 0, io.ErrUnexpectedEOF
		}
		size := int64(binary.BigEndian.Uint32(x.raw))
		x.raw = x.raw[4:]
		if size > int64(len(x.raw)) {
			return 0, io.ErrUnexpectedEOF
		}
		var err error
		if x.into, err = snappyBlock(x.into[:cap(x.into)], x.raw[:size], x.limit); err != nil {
			return 0, err
		}
		x.block, x.raw = x.into, x.raw[size:]
	}
	n := copy(p, x.block)
	x.block = x.block[n:]
	return n, nil
}
