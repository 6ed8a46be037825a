package txnlog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
)

// reader is kbin.Reader with what the log demands beyond it: kbin takes a null
// for an empty value, any byte for a boolean and any number for a count,
// because a client must be lenient with brokers. Here a byte that no writer
// has written is corruption, and must be found before something is decided on
// it.
type reader struct {
	kbin.Reader
	reason string // the first thing that is wrong, in words
	shared *shared
}

// shared is what the records of a log have in common, each kept once: there are
// few clusters and topics, and a hundred thousand ids that name the same two
// clusters would hold their names eight hundred thousand times. Neighbours mostly
// share all of it, so what the last record had is looked at first.
type shared struct {
	names    map[string]string
	lastName string

	session, former lastList // of cluster ids
}

// lastList is the last list that was read.
type lastList struct {
	ids     []string // nobody changes them in place
	encoded []byte   // the list as it stood in the record
}

// namesKept bounds names, so that a log with a topic for each id costs no more
// than without.
const namesKept = 4096

func (s *shared) name(b []byte) string {
	if s.lastName == string(b) {
		return s.lastName
	}
	name, ok := s.names[string(b)]
	if !ok {
		name = string(b)
		if s.names == nil {
			s.names = make(map[string]string)
		}
		if len(s.names) < namesKept {
			s.names[name] = name
		}
	}
	s.lastName = name
	return name
}

func (r *reader) fail(format string, args ...any) {
	if r.reason == "" && r.Ok() {
		r.reason = fmt.Sprintf(format, args...)
	}
	r.Src = nil
}

func (r *reader) version() error {
	version, ok := valueVersionOf(r.Src)
	if !ok {
		return &CorruptError{Reason: "the value has no version"}
	}
	if version != valueVersion {
		return &UnknownVersionError{Version: version}
	}
	r.Src = r.Src[2:]
	return nil
}

// complete tells whether all was well and nothing is left over.
func (r *reader) complete() error {
	switch {
	case r.reason != "":
		return &CorruptError{Reason: r.reason}
	case !r.Ok():
		return &CorruptError{Reason: "the value is too short"}
	case len(r.Src) > 0:
		return &CorruptError{Reason: fmt.Sprintf("the value has %d bytes too many", len(r.Src))}
	}
	return nil
}

// enum reads a number of 0 to last. A larger one means a state that this
// version does not know how to act on, so the record is as good as unreadable.
func (r *reader) enum(field string, last int8) int8 {
	v := r.Int8()
	if v < 0 || v > last {
		r.fail("%s is %d, and only 0 to %d are known", field, v, last)
		return 0
	}
	return v
}

func (r *reader) bool(field string) bool {
	v := r.Int8()
	if v != 0 && v != 1 {
		r.fail("%s is %d, and not a boolean", field, v)
	}
	return v == 1
}

func (r *reader) string(field string) string { return string(r.bytes(field)) }

// name reads a string that many records share.
func (r *reader) name(field string) string { return r.shared.name(r.bytes(field)) }

func (r *reader) bytes(field string) []byte {
	n := r.Uvarint()
	if n == 0 {
		r.fail("%s is null", field)
		return nil
	}
	return r.Span(int(n - 1))
}

// clusterIDs reads a list of clusters, which mostly is the last one again.
func (r *reader) clusterIDs(last *lastList) []string {
	if len(last.encoded) > 0 && bytes.HasPrefix(r.Src, last.encoded) {
		r.Src = r.Src[len(last.encoded):]
		return last.ids
	}
	start := r.Src
	n := r.arrayLen("cluster ids", 1)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.name("cluster id")
	}
	if r.Ok() && r.reason == "" {
		last.ids, last.encoded = list, bytes.Clone(start[:len(start)-len(r.Src)])
	}
	return list
}

// clusterID reads the id of a cluster, which mostly is one of the session's.
func (r *reader) clusterID(field string, session []string) string {
	b := r.bytes(field)
	for _, id := range session {
		if id == string(b) {
			return id
		}
	}
	return r.shared.name(b)
}

// arrayLen reads a count of elements that take at least size bytes each.
func (r *reader) arrayLen(field string, size int) int {
	n := r.Uvarint()
	if n == 0 {
		r.fail("%s is null", field)
		return 0
	}
	if int64(n-1)*int64(size) > int64(len(r.Src)) {
		r.fail("%s has a count of %d, more than its %d bytes can hold", field, n-1, len(r.Src))
		return 0
	}
	return int(n - 1)
}

// tags reads tagged fields and returns those that known does not know. known
// reads the data of one that it knows from r.
func (r *reader) tags(known func(tag uint32) bool) map[uint32][]byte {
	var tags map[uint32][]byte
	r.eachTag(func(tag uint32, data []byte) {
		rest := r.Src
		r.Src = data
		if known(tag) {
			if len(r.Src) > 0 {
				r.fail("tagged field %d has %d bytes too many", tag, len(r.Src))
			}
			r.Src = rest
			return
		}
		r.Src = rest
		if tags == nil {
			tags = make(map[uint32][]byte)
		}
		tags[tag] = slices.Clone(data)
	})
	return tags
}

// rawTags reads tagged fields and returns them as they stand in the record, or
// "" when there are none.
func (r *reader) rawTags() string {
	start, count := r.Src, 0
	r.eachTag(func(uint32, []byte) { count++ })
	if count == 0 {
		return ""
	}
	return string(start[:len(start)-len(r.Src)])
}

// eachTag insists on ascending tags, as KIP-482 does: with two of one number
// it would depend on the reader which of them counts.
func (r *reader) eachTag(fn func(tag uint32, data []byte)) {
	n := int64(r.Uvarint())
	if n*minTagSize > int64(len(r.Src)) {
		r.fail("a count of %d tagged fields is more than its %d bytes can hold", n, len(r.Src))
		return
	}
	next := int64(0)
	for ; n > 0; n-- {
		tag := r.Uvarint()
		data := r.Span(int(r.Uvarint()))
		if !r.Ok() {
			return
		}
		if int64(tag) < next {
			r.fail("tagged field %d is out of order", tag)
			return
		}
		next = int64(tag) + 1
		fn(tag, data)
	}
}

func appendTags(dst []byte, tags map[uint32][]byte) []byte {
	if len(tags) == 0 {
		return append(dst, 0) // of nearly every record, and to sort nothing allocates
	}
	dst = kbin.AppendUvarint(dst, uint32(len(tags)))
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		dst = kbin.AppendUvarint(dst, tag)
		dst = kbin.AppendUvarint(dst, uint32(len(tags[tag])))
		dst = append(dst, tags[tag]...)
	}
	return dst
}
