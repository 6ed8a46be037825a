package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

const (
	// sizeBytes precede every frame and hold its length.
	sizeBytes = 4
	// minHeaderBytes are API key, version and correlation id.
	minHeaderBytes = 8
	// maxControlBytes bounds requests that carry no records. An array costs up
	// to some sixty times its bytes when it is parsed, so what 100 MiB of
	// produced records may be, a list of topics may not.
	maxControlBytes = 512 << 10
	// maxElements bounds the elements of all arrays of a request. kfake does one
	// thing after the other, and a hundred thousand topics without a name would
	// keep all clients waiting.
	maxElements = 20_000
	// chunkBytes is how much of a frame is read, and allocated, at a time: a
	// length of 100 MiB alone costs its sender 100 MiB.
	chunkBytes = 64 << 10
)

// apiVersionsKey is the key of the one request that is answered in every
// version, and whose response header never has tags (KIP-511).
var apiVersionsKey = int16(kmsg.ApiVersions)

// versionRange is what is served of one API key.
type versionRange struct{ min, max int16 }

// apiTable is every API key served.
type apiTable map[int16]versionRange

func (t apiTable) serves(key, version int16) bool {
	r, ok := t[key]
	return ok && version >= r.min && version <= r.max
}

// A frameError is a request for which Kafka, too, closes the connection
// without an answer.
type frameError struct{ problem string }

func (e *frameError) Error() string { return e.problem }

func frameErrorf(format string, args ...any) error {
	return &frameError{problem: fmt.Sprintf(format, args...)}
}

// request is one parsed frame.
type request struct {
	key, version  int16
	correlationID int32
	raw           []byte       // length, header and body, as they came
	bodyAt        int          // where the body begins in raw
	elements      int          // of its arrays; counted for large requests only
	body          kmsg.Request // nil only for an ApiVersions of a version not served
}

func (r *request) name() string { return wire.NameForKey(r.key) }

// readFrame reads one frame, its length included, into buf, which grows as the
// bytes arrive. Before each piece waiting is called, to set a deadline, and once
// the length and the API key are known reserve, to have room.
func readFrame(r *bufio.Reader, buf []byte, limit int32, waiting func() error, reserve func(size int, key int16) error) ([]byte, error) {
	buf = slices.Grow(buf[:0], sizeBytes)[:sizeBytes]
	if err := waiting(); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(buf)))
	if size < minHeaderBytes || size > int(limit) {
		return nil, frameErrorf("a frame of %d bytes; allowed is %d to %d (socket.request.max.bytes)", size, minHeaderBytes, limit)
	}
	prefix, err := r.Peek(2) // there are minHeaderBytes to come
	if err != nil {
		return nil, fmt.Errorf("a frame that ends before its API key: %w", noEOF(err))
	}
	key := int16(binary.BigEndian.Uint16(prefix))
	if size > maxControlBytes && kmsg.Key(key) != kmsg.Produce {
		return nil, frameErrorf("a frame of %d bytes for %s; only Produce may have more than %d", size, wire.NameForKey(key), maxControlBytes)
	}
	if err := reserve(size, key); err != nil {
		return nil, err
	}
	for end := sizeBytes + size; len(buf) < end; {
		have := len(buf)
		n := min(end-have, chunkBytes)
		buf = slices.Grow(buf, n)[:have+n]
		if err := waiting(); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			return nil, fmt.Errorf("a frame that ends after %d of %d bytes: %w", have-sizeBytes, size, noEOF(err))
		}
	}
	return buf, nil
}

// noEOF makes the end of the stream inside a frame an error of its own: the
// end between two frames is how a client says goodbye.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseRequest reads header and body of a frame, which comes with its length.
// The result keeps raw. Every error is a *frameError.
func parseRequest(raw []byte, apis apiTable) (*request, error) {
	if len(raw) < sizeBytes+minHeaderBytes {
		return nil, frameErrorf("a frame of %d bytes has no header", len(raw))
	}
	r := kbin.Reader{Src: raw[sizeBytes:]}
	req := &request{key: r.Int16(), version: r.Int16(), correlationID: r.Int32(), raw: raw}
	if !apis.serves(req.key, req.version) {
		if _, known := apis[req.key]; known && req.key == apiVersionsKey {
			return req, nil
		}
		return nil, frameErrorf("%s (key %d) version %d is not served", req.name(), req.key, req.version)
	}
	body, ours := wire.RequestForKey(req.key, req.version)
	if !ours {
		if body = kmsg.RequestForKey(req.key); body == nil {
			return nil, frameErrorf("key %d is not known", req.key)
		}
		body.SetVersion(req.version)
	}
	r.NullableString() // client id
	if body.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return nil, frameErrorf("the header of %s version %d does not parse", req.name(), req.version)
	}
	req.bodyAt = len(raw) - len(r.Src)
	if kmsg.Key(req.key) == kmsg.Produce && produced(req.version, r.Src, maxElements) > maxElements {
		return nil, frameErrorf("Produce names more than %d topics and partitions", maxElements)
	}
	if err := body.ReadFrom(r.Src); err != nil {
		return nil, frameErrorf("%s version %d does not parse: %v", req.name(), req.version, err)
	}
	if kmsg.Key(req.key) != kmsg.Produce && len(raw) > smallControl {
		if req.elements = elements(reflect.ValueOf(body), maxElements); req.elements > maxElements {
			return nil, frameErrorf("%s has more than %d elements in its arrays", req.name(), maxElements)
		}
	}
	req.body = body
	return req, nil
}

// elements counts what is in the arrays of a request, until it is more than
// enough.
func elements(v reflect.Value, enough int) int {
	n := 0
	switch v.Kind() { //nolint:exhaustive // the other kinds hold no array
	case reflect.Pointer:
		if !v.IsNil() {
			n = elements(v.Elem(), enough)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && n <= enough; i++ {
			n += elements(v.Field(i), enough-n)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		n = v.Len()
		for i := 0; i < v.Len() && n <= enough; i++ {
			n += elements(v.Index(i), enough-n)
		}
	}
	return n
}

// withVersion gives the frame with another version and the same body.
func (r *request) withVersion(version int16) []byte {
	raw := bytes.Clone(r.raw)
	binary.BigEndian.PutUint16(raw[sizeBytes+2:], uint16(version))
	return raw
}

// withBody gives the frame of the same header and another body.
func (r *request) withBody(body kmsg.Request) []byte {
	raw := bytes.Clone(r.raw[:r.bodyAt])
	binary.BigEndian.PutUint16(raw[sizeBytes+2:], uint16(body.GetVersion()))
	raw = body.AppendTo(raw)
	binary.BigEndian.PutUint32(raw, uint32(len(raw)-sizeBytes))
	return raw
}

// encodeResponse gives a response with its header and length.
func encodeResponse(correlationID int32, resp kmsg.Response) []byte {
	out := make([]byte, sizeBytes, 256)
	out = binary.BigEndian.AppendUint32(out, uint32(correlationID))
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		out = append(out, 0) // no tags
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-sizeBytes))
	return out
}

// readResponse reads what kfake sends, length included. kfake is trusted.
func readResponse(r *bufio.Reader) ([]byte, error) {
	prefix, err := r.Peek(sizeBytes)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, sizeBytes+int(binary.BigEndian.Uint32(prefix)))
	_, err = io.ReadFull(r, frame)
	return frame, err
}

// decodeResponse parses a response, length included, into resp.
func decodeResponse(frame []byte, resp kmsg.Response) error {
	r := kbin.Reader{Src: frame[sizeBytes:]}
	r.Int32() // correlation id
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return errors.New("a response without a whole header")
	}
	return resp.ReadFrom(r.Src)
}

// checkID says that a response, length included, is not to the request of id.
func checkID(frame []byte, id int32) error {
	if len(frame) < sizeBytes+4 {
		return errors.New("a response without a correlation id")
	}
	if got := int32(binary.BigEndian.Uint32(frame[sizeBytes:])); got != id {
		return fmt.Errorf("the answer to %d came where %d was due", got, id)
	}
	return nil
}
