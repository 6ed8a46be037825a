package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// anyString draws strings that the protocol can carry, with lengths around
// those where the compact length grows by a byte.
func anyString() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SampledFrom([]int{0, 1, 126, 127, 16382, 16383, maxString}), func(n int) string {
			return strings.Repeat("x", n)
		}),
	)
}

func anyTags() *rapid.Generator[kmsg.Tags] {
	return rapid.Custom(func(t *rapid.T) kmsg.Tags {
		var tags kmsg.Tags
		values := rapid.MapOfN(
			rapid.Uint32Range(0, 1<<31-1),
			rapid.SliceOfN(rapid.Byte(), 0, 200),
			0, 3,
		).Draw(t, "tags")
		for tag, value := range values {
			tags.Set(tag, append([]byte{}, value...))
		}
		return tags
	})
}

// fill draws a value for every field of a struct but Version.
func fill(t *rapid.T, s reflect.Value) {
	for i := range s.NumField() {
		name, f := s.Type().Field(i).Name, s.Field(i)
		if name == "Version" {
			continue
		}
		f.Set(draw(t, name, f.Type()))
	}
}

func draw(t *rapid.T, name string, typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch v.Interface().(type) {
	case kmsg.Tags:
		v.Set(reflect.ValueOf(anyTags().Draw(t, name)))
		return v
	case [16]byte:
		copy(v.Slice(0, 16).Bytes(), rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
		return v
	case *string:
		v.Set(reflect.ValueOf(rapid.Ptr(anyString(), true).Draw(t, name)))
		return v
	}
	switch kind := typ.Kind(); {
	case kind == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, name))
	case v.CanInt():
		limit := int64(1)<<(typ.Bits()-1) - 1
		v.SetInt(rapid.Int64Range(-limit-1, limit).Draw(t, name))
	case kind == reflect.String:
		v.SetString(anyString().Draw(t, name))
	case kind == reflect.Slice: // an empty array is nil, as it is read
		for range rapid.IntRange(0, 3).Draw(t, "len("+name+")") {
			v.Set(reflect.Append(v, draw(t, name, typ.Elem())))
		}
	case kind == reflect.Struct:
		fill(t, v)
	default:
		t.Fatalf("no rule for %s %s", name, typ)
	}
	return v
}

func TestRoundTrip(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				sent := kind.make()
				fill(t, reflect.ValueOf(sent).Elem())
				raw := sent.AppendTo(nil)

				// What the message held before must not show through.
				received := kind.make()
				fill(t, reflect.ValueOf(received).Elem())
				if err := received.ReadFrom(raw); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(sent, received) {
					t.Fatalf("sent\n%+v\nreceived\n%+v", sent, received)
				}
			})
		})
	}
}

func TestAppendToOnlyAppends(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			golden := readGolden(t, kind.name)[1]
			m := kind.make()
			if err := m.ReadFrom(golden.bytes(t)); err != nil {
				t.Fatal(err)
			}
			// kgo writes a request again after a broken connection.
			for range 2 {
				if got, want := string(m.AppendTo([]byte("before"))), "before"+string(golden.bytes(t)); got != want {
					t.Errorf("got %x, want %x", got, want)
				}
			}
		})
	}
}

func TestCutOrLengthenedMessageIsRefused(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := kind.make()
				fill(t, reflect.ValueOf(m).Elem())
				raw := m.AppendTo(nil)

				cut := rapid.IntRange(0, len(raw)-1).Draw(t, "cut")
				var de *DecodeError
				if err := kind.make().ReadFrom(raw[:cut]); !errors.As(err, &de) {
					t.Fatalf("%d of %d bytes were read: %v", cut, len(raw), err)
				}
				if err := kind.make().ReadFrom(append(raw, 0)); !errors.Is(err, errTrailing) {
					t.Fatalf("a byte too many: %v", err)
				}
			})
		})
	}
}
