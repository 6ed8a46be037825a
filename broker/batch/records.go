package batch

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// checkRecords reads the records behind the head: as many as it says, each of
// the form that every client expects, and nothing after them.
func (h head) checkRecords(raw []byte) error {
	s := scanner{buf: raw}
	if c := h.codec(); c != uncompressed {
		in, release, err := c.open(raw)
		if err != nil {
			return doesNotOpen(c, err)
		}
		defer release()
		window := windows.Get().(*[]byte)
		defer windows.Put(window)
		s = scanner{in: in, window: *window, left: opened(len(raw))}
	}
	for n := range h.count {
		bad := h.record(&s, n)
		switch {
		case errors.Is(s.err, errShort):
			return refuse(kerr.InvalidRecord, "the batch says that it has %d records, and ends in number %d", h.count, n)
		case errors.Is(s.err, errVarint):
			return refuse(kerr.InvalidRecord, "record %d: %v", n, s.err)
		case s.err != nil:
			return doesNotOpen(h.codec(), s.err)
		case bad != "":
			return refuse(kerr.InvalidRecord, "record %d: %s", n, bad)
		}
	}
	switch more := s.more(); {
	case s.err != nil:
		return doesNotOpen(h.codec(), s.err)
	case more:
		return refuse(kerr.InvalidRecord, "more follows the %d records of the batch", h.count)
	case s.outOfTime:
		return refuse(kerr.InvalidTimestamp, "the timestamp of a record is not between %d and %d", noTimestamp, maxTimestamp)
	}
	return nil
}

// record reads one record and says what is wrong with it.
func (h head) record(s *scanner, number int32) (bad string) {
	length := s.varint32()
	if length < 0 {
		return "its length is negative"
	}
	end := s.at + length
	s.skip(1) // attributes, of which there are none
	at, overflows := plus(h.firstTimestamp, s.varint())
	s.outOfTime = s.outOfTime || overflows || !timestamp(at)
	if s.varint32() != int64(number) && s.err == nil {
		return "its offset is not the one that comes next"
	}
	for range 2 { // key and value
		if !s.nullable() {
			return "the length of its key or value is negative"
		}
	}
	headers := s.varint32()
	if headers < 0 {
		return "the number of its headers is negative"
	}
	for ; headers > 0 && s.err == nil; headers-- {
		if !s.skip(s.varint32()) || !s.nullable() {
			return "the length of a header is negative"
		}
	}
	if s.err == nil && s.at != end {
		return "its length is not that of what is in it"
	}
	return ""
}

func plus(a, b int64) (sum int64, overflows bool) {
	sum = a + b
	return sum, b > 0 && sum < a || b < 0 && sum > a
}

// windowBytes is how much of a compressed batch is there at a time.
const windowBytes = 16 << 10

var windows = sync.Pool{New: func() any { b := make([]byte, windowBytes); return &b }}

var (
	errTooMuch = errors.New("the batch opens to too much")
	errShort   = errors.New("the records end too early")
	errVarint  = errors.New("a number is longer than it may be")
)

// scanner reads records, from memory or as they are opened. After an error it
// gives zeros.
type scanner struct {
	buf       []byte    // what is there and has not been read
	in        io.Reader // where more comes from; nil: there is no more
	window    []byte    // holds buf when there is an in
	left      int64     // what in may still give
	at        int64     // how much has been read
	err       error
	outOfTime bool // a timestamp was out of range
}

// fill makes n bytes be there, or as many as there are.
func (s *scanner) fill(n int) {
	if s.in == nil || s.err != nil || len(s.buf) >= n {
		return
	}
	have := copy(s.window, s.buf)
	for have < n {
		got, err := s.in.Read(s.window[have:])
		have += got
		if s.left -= int64(got); s.left < 0 {
			s.err = errTooMuch
		} else if err != nil && !errors.Is(err, io.EOF) {
			s.err = err
		}
		if err != nil || s.err != nil {
			s.in = nil
			break
		}
	}
	s.buf = s.window[:have]
}

// varint reads a number of 64 bits.
func (s *scanner) varint() int64 {
	if s.err != nil {
		return 0
	}
	if len(s.buf) < binary.MaxVarintLen64 {
		s.fill(binary.MaxVarintLen64)
	}
	v, n := binary.Varint(s.buf)
	switch {
	case n == 0:
		s.fail(errShort)
	case n < 0:
		s.fail(errVarint)
	}
	if s.err != nil {
		return 0
	}
	s.buf, s.at = s.buf[n:], s.at+int64(n)
	return v
}

// varint32 reads one of 32 bits, which has five bytes at most: Kafka and kgo
// read no further.
func (s *scanner) varint32() int64 {
	before := s.at
	v := s.varint()
	if s.at-before > binary.MaxVarintLen32 || v < math.MinInt32 || v > math.MaxInt32 {
		s.fail(errVarint)
		return 0
	}
	return v
}

// skip passes n bytes; false when n is negative.
func (s *scanner) skip(n int64) bool {
	if n < 0 {
		return false
	}
	for s.err == nil && n > int64(len(s.buf)) {
		n -= int64(len(s.buf))
		s.at += int64(len(s.buf))
		s.buf = nil
		if s.fill(1); len(s.buf) == 0 {
			s.fail(errShort)
		}
	}
	if s.err == nil {
		s.buf, s.at = s.buf[n:], s.at+n
	}
	return true
}

// nullable passes bytes behind their length, which is -1 for none.
func (s *scanner) nullable() bool {
	n := s.varint32()
	return n == -1 || s.skip(n)
}

// more says that something follows.
func (s *scanner) more() bool {
	s.fill(1)
	return len(s.buf) > 0
}

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
