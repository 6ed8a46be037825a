package wire

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func FuzzFindCoordinatorRequest(f *testing.F)  { fuzzDecoder(f, "FindCoordinatorRequest") }
func FuzzFindCoordinatorResponse(f *testing.F) { fuzzDecoder(f, "FindCoordinatorResponse") }

func FuzzInitProducerIdRequest(f *testing.F)  { fuzzDecoder(f, "InitProducerIdRequest") }
func FuzzInitProducerIdResponse(f *testing.F) { fuzzDecoder(f, "InitProducerIdResponse") }

func FuzzInitGlobalTxnRequest(f *testing.F)  { fuzzDecoder(f, "InitGlobalTxnRequest") }
func FuzzInitGlobalTxnResponse(f *testing.F) { fuzzDecoder(f, "InitGlobalTxnResponse") }

func FuzzEndGlobalTxnRequest(f *testing.F)  { fuzzDecoder(f, "EndGlobalTxnRequest") }
func FuzzEndGlobalTxnResponse(f *testing.F) { fuzzDecoder(f, "EndGlobalTxnResponse") }

func FuzzDescribeGlobalTransactionsRequest(f *testing.F) {
	fuzzDecoder(f, "DescribeGlobalTransactionsRequest")
}

func FuzzDescribeGlobalTransactionsResponse(f *testing.F) {
	fuzzDecoder(f, "DescribeGlobalTransactionsResponse")
}

func FuzzListGlobalTransactionsRequest(f *testing.F) {
	fuzzDecoder(f, "ListGlobalTransactionsRequest")
}

func FuzzListGlobalTransactionsResponse(f *testing.F) {
	fuzzDecoder(f, "ListGlobalTransactionsResponse")
}

func FuzzResolveGlobalTransactionRequest(f *testing.F) {
	fuzzDecoder(f, "ResolveGlobalTransactionRequest")
}

func FuzzResolveGlobalTransactionResponse(f *testing.F) {
	fuzzDecoder(f, "ResolveGlobalTransactionResponse")
}

func TestEveryDecoderIsFuzzed(t *testing.T) {
	source, err := os.ReadFile("fuzz_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range messageKinds() {
		if !strings.Contains(string(source), "func Fuzz"+kind.name+"(f *testing.F)") {
			t.Errorf("no fuzz target for %s", kind.name)
		}
	}
}

// The memory of a decoded message is at most factor times its input plus
// constant: a one-byte string costs a 16-byte header and its bytes, in a slice
// that may be half empty; an empty tag of two bytes costs a map entry.
const (
	footprintFactor   = 64
	footprintConstant = 1024
)

// fuzzDecoder checks that a decoder survives any input, and that what it
// accepts is written and read again as the same message, whose memory is
// bounded by its input.
func fuzzDecoder(f *testing.F, name string) {
	f.Helper()
	for _, golden := range readGolden(f, name) {
		f.Add(golden.bytes(f))
	}
	var kind messageKind
	for _, k := range messageKinds() {
		if k.name == name {
			kind = k
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		first := kind.make()
		if err := first.ReadFrom(in); err != nil {
			var de *DecodeError
			if !errors.As(err, &de) || de.Message != name || de.Version != kind.version {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		if got := footprint(reflect.ValueOf(first).Elem()); got > footprintFactor*len(in)+footprintConstant {
			t.Fatalf("%d bytes of input became %d bytes of memory", len(in), got)
		}
		out := first.AppendTo(nil)
		second := kind.make()
		if err := second.ReadFrom(out); err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("read again as another message:\n%+v\n%+v", first, second)
		}
		if again := second.AppendTo(nil); !bytes.Equal(out, again) {
			t.Fatalf("written again as other bytes:\n%x\n%x", out, again)
		}
	})
}

// footprint is the number of bytes that a value holds, itself included.
func footprint(v reflect.Value) int {
	size := int(v.Type().Size())
	switch kind := v.Kind(); {
	case kind == reflect.String:
		size += v.Len()
	case kind == reflect.Pointer && !v.IsNil():
		size += footprint(v.Elem())
	case kind == reflect.Slice:
		size += (v.Cap() - v.Len()) * int(v.Type().Elem().Size())
		for i := range v.Len() {
			size += footprint(v.Index(i))
		}
	case kind == reflect.Struct:
		if tags, ok := v.Interface().(kmsg.Tags); ok {
			tags.Each(func(_ uint32, value []byte) { size += 2*32 + cap(value) })
			return size
		}
		for i := range v.NumField() {
			size += footprint(v.Field(i)) - int(v.Field(i).Type().Size())
		}
	}
	return size
}
