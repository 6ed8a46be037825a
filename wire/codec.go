package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxString is the length in bytes above which Kafka's generated readers
// refuse a string, compact or not.
const maxString = math.MaxInt16

// maxArray and maxTags are the counts above which Kafka 4.4.0 refuses an array
// and a section of tagged fields (MessageUtil).
const (
	maxArray = 1_000_000
	maxTags  = 10_000
)

// firstArray bounds what an array length alone may allocate: the rest grows
// with the elements that are really there. Without it a frame of one megabyte
// that claims a million participants would allocate eighty.
const firstArray = 64

// What can be wrong with a message, besides kbin.ErrNotEnoughData.
var (
	errNull     = errors.New("null, but a value is required")
	errTooLong  = errors.New("longer than 32767 bytes")
	errUTF8     = errors.New("not valid UTF-8")
	errTooMany  = errors.New("more elements than Kafka takes")
	errTagOrder = errors.New("tags are not in ascending order")
	errTrailing = errors.New("bytes left over after the last field")
	errVersion  = errors.New("version is not supported")
)

// DecodeError says which field of which message could not be read, and why.
type DecodeError struct {
	// Message is the name of the message in its schema, Version the version
	// that it was read as.
	Message string
	Version int16
	// Field is the schema name of the field, with the path to it, as in
	// "Participants[2].ClusterId"; empty when no field is to blame.
	Field string
	Err   error
}

func (e *DecodeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("wire: %s v%d: %v", e.Message, e.Version, e.Err)
	}
	return fmt.Sprintf("wire: %s v%d: field %s: %v", e.Message, e.Version, e.Field, e.Err)
}

// Unwrap gives the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

// decoder reads the flexible body of one message. It keeps the first fault and
// the name of its field; every read after that gives a zero value at once, so
// that the decoder of a message is a plain list of its fields.
type decoder struct {
	r     kbin.Reader
	field string
	err   error
}

// fail records the first fault and takes the rest of the input away, which
// ends every later read.
func (d *decoder) fail(field string, err error) {
	if d.err == nil {
		d.field, d.err = field, err
	}
	d.r.Src = nil
}

// ok reports whether the read of field that was just made is good.
func (d *decoder) ok(field string) bool {
	if d.err == nil && !d.r.Ok() {
		d.fail(field, kbin.ErrNotEnoughData)
	}
	return d.err == nil
}

func (d *decoder) bool(field string) bool {
	v := d.r.Bool()
	d.ok(field)
	return v
}

func (d *decoder) int8(field string) int8 {
	v := d.r.Int8()
	d.ok(field)
	return v
}

func (d *decoder) int16(field string) int16 {
	v := d.r.Int16()
	d.ok(field)
	return v
}

func (d *decoder) int32(field string) int32 {
	v := d.r.Int32()
	d.ok(field)
	return v
}

func (d *decoder) int64(field string) int64 {
	v := d.r.Int64()
	d.ok(field)
	return v
}

func (d *decoder) uuid(field string) [16]byte {
	v := d.r.Uuid()
	d.ok(field)
	return v
}

// span reads a string's bytes; present is false for null.
func (d *decoder) span(field string) (b []byte, present bool) {
	n := int64(d.r.Uvarint()) - 1
	switch {
	case !d.ok(field) || n < 0:
		return nil, false
	case n > maxString:
		d.fail(field, errTooLong)
		return nil, false
	}
	b = d.r.Span(int(n))
	if !d.ok(field) {
		return nil, false
	}
	// Java would put U+FFFD where the bytes are wrong, so that two ids that
	// differ on the wire could become one.
	if !utf8.Valid(b) {
		d.fail(field, errUTF8)
		return nil, false
	}
	return b, true
}

func (d *decoder) string(field string) string {
	b, present := d.span(field)
	if !present {
		d.fail(field, errNull)
	}
	return string(b)
}

func (d *decoder) nullableString(field string) *string {
	b, present := d.span(field)
	if !present {
		return nil
	}
	return kmsg.StringPtr(string(b))
}

// decodeArray reads an array of anything. A null array is refused, as Kafka
// does when the schema does not allow it; no array of these messages may be
// null. An empty one is nil.
func decodeArray[T any](d *decoder, field string, element func(*decoder, *T)) []T {
	n := int64(d.r.Uvarint()) - 1
	switch {
	case !d.ok(field):
		return nil
	case n < 0:
		d.fail(field, errNull)
		return nil
	case n > int64(len(d.r.Src)): // no element is shorter than a byte
		d.fail(field, fmt.Errorf("%w: %d elements in %d bytes", kbin.ErrNotEnoughData, n, len(d.r.Src)))
		return nil
	case n > maxArray:
		d.fail(field, errTooMany)
		return nil
	case n == 0:
		return nil
	}
	out := make([]T, 0, min(n, firstArray))
	for i := range n {
		var zero T
		out = append(out, zero)
		element(d, &out[i])
		if d.err != nil {
			d.field = strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", field, i, d.field), ".")
			return nil
		}
	}
	return out
}

func (d *decoder) strings(field string) []string {
	return decodeArray(d, field, func(d *decoder, s *string) { *s = d.string("") })
}

// tags reads the tagged fields of a struct; none is known in any of these
// messages. The values are copied: the message may outlive the frame that it
// was read from.
func (d *decoder) tags() kmsg.Tags {
	const field = "tagged fields"
	var tags kmsg.Tags
	previous := int64(-1)
	n := d.r.Uvarint()
	if n > maxTags {
		d.fail(field, errTooMany)
	}
	for range n {
		key, size := d.r.Uvarint(), d.r.Uvarint()
		value := d.r.Span(int(min(size, math.MaxInt32)))
		if !d.ok(field) {
			return kmsg.Tags{}
		}
		// A tag sent twice could not be written again as it came.
		if int64(key) <= previous || key > math.MaxInt32 {
			d.fail(field, fmt.Errorf("%w: %d after %d", errTagOrder, key, previous))
			return kmsg.Tags{}
		}
		previous = int64(key)
		tags.Set(key, bytes.Clone(value))
	}
	d.ok(field)
	return tags
}

// done ends the reading of a message. Bytes left over mean that the sender
// wrote another layout than the one that was read.
func (d *decoder) done(message string, version int16) error {
	if d.err == nil && len(d.r.Src) > 0 {
		d.err = fmt.Errorf("%w: %d", errTrailing, len(d.r.Src))
	}
	if d.err == nil {
		return nil
	}
	return &DecodeError{Message: message, Version: version, Field: d.field, Err: d.err}
}

// checkVersion refuses a version whose layout the caller does not read.
func checkVersion(message string, version, lowest, highest int16) error {
	if version < lowest || version > highest {
		err := fmt.Errorf("%w: it is %d to %d", errVersion, lowest, highest)
		return &DecodeError{Message: message, Version: version, Err: err}
	}
	return nil
}

// appendText appends a text for people. It is cleaned and cut to what the
// decoder accepts, because the answer matters more than its words: a
// participant's strange error message, stored with a decision, would otherwise
// make that decision unreadable for its client for ever.
func appendText(dst []byte, text *string) []byte {
	if text == nil {
		return kbin.AppendCompactNullableString(dst, nil)
	}
	clean := strings.ToValidUTF8(*text, "\uFFFD")
	if len(clean) > maxString {
		clean = strings.ToValidUTF8(clean[:maxString], "") // the cut may split a rune
	}
	return kbin.AppendCompactString(dst, clean)
}

func appendStrings(dst []byte, values []string) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(values))
	for _, s := range values {
		dst = kbin.AppendCompactString(dst, s)
	}
	return dst
}

func appendTags(dst []byte, tags *kmsg.Tags) []byte {
	dst = kbin.AppendUvarint(dst, uint32(tags.Len()))
	return tags.AppendEach(dst)
}

// requestWith issues req on r. The response is nil on error, or when r answers
// with another type.
func requestWith[R kmsg.Response](ctx context.Context, r kmsg.Requestor, req kmsg.Request) (R, error) {
	var none R
	resp, err := r.Request(ctx, req)
	if err != nil {
		return none, err
	}
	typed, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("wire: %s was answered with a %T", NameForKey(req.Key()), resp)
	}
	return typed, nil
}
