package wire

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDecoderNamesTheFieldAndTheFault(t *testing.T) {
	// An EndGlobalTxnRequest up to Participants.
	head := kbin.AppendCompactString(nil, "id")
	head = kbin.AppendInt32(head, 1)
	head = kbin.AppendInt64(head, 2)
	head = kbin.AppendBool(head, true)
	head = kbin.AppendInt32(head, 3)
	with := func(rest ...byte) []byte { return append(append([]byte{}, head...), rest...) }
	participant := func(clusterID ...byte) []byte {
		p := append(clusterID, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1)
		return append(p, 0) // no tags
	}

	for name, test := range map[string]struct {
		in    []byte
		field string
		err   error
	}{
		"empty input":             {nil, "GlobalTransactionalId", kbin.ErrNotEnoughData},
		"null string":             {[]byte{0}, "GlobalTransactionalId", errNull},
		"string past the end":     {[]byte{9, 'a'}, "GlobalTransactionalId", kbin.ErrNotEnoughData},
		"string of 32768 bytes":   {kbin.AppendCompactString(nil, strings.Repeat("x", 32768)), "GlobalTransactionalId", errTooLong},
		"string of 4 GiB":         {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, "GlobalTransactionalId", errTooLong},
		"string not in UTF-8":     {[]byte{2, 0xff}, "GlobalTransactionalId", errUTF8},
		"length of six bytes":     {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, "GlobalTransactionalId", kbin.ErrNotEnoughData},
		"cut number":              {head[:5], "GlobalEpoch", kbin.ErrNotEnoughData},
		"null array":              {with(0), "Participants", errNull},
		"array past the end":      {with(9, 1, 2, 3), "Participants", kbin.ErrNotEnoughData},
		"array of 2^31 elements":  {with(0x81, 0x80, 0x80, 0x80, 0x08), "Participants", kbin.ErrNotEnoughData},
		"array of 2^32-2":         {with(0xff, 0xff, 0xff, 0xff, 0x0f), "Participants", kbin.ErrNotEnoughData},
		"fault in an element":     {with(append([]byte{3}, append(participant(2, 'a'), participant(0)...)...)...), "Participants[1].ClusterId", errNull},
		"cut element":             {with(append([]byte{2}, participant(2, 'a')[:6]...)...), "Participants[0].ProducerId", kbin.ErrNotEnoughData},
		"cut tags":                {with(1), "tagged fields", kbin.ErrNotEnoughData},
		"tag past the end":        {with(1, 1, 5, 200, 1), "tagged fields", kbin.ErrNotEnoughData},
		"tag sent twice":          {with(1, 2, 5, 0, 5, 0), "tagged fields", errTagOrder},
		"tags in the wrong order": {with(1, 2, 5, 0, 4, 0), "tagged fields", errTagOrder},
		"tag above 2^31":          {with(1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0), "tagged fields", errTagOrder},
		"10001 tags":              {with(1, 0x91, 0x4e), "tagged fields", errTooMany},
		"4 billion tags":          {with(1, 0xff, 0xff, 0xff, 0xff, 0x0f), "tagged fields", errTooMany},
		"a byte left over":        {with(1, 0, 0), "", errTrailing},
	} {
		t.Run(name, func(t *testing.T) {
			err := NewPtrEndGlobalTxnRequest().ReadFrom(test.in)
			var de *DecodeError
			if !errors.As(err, &de) {
				t.Fatalf("got %v", err)
			}
			if de.Message != "EndGlobalTxnRequest" || de.Field != test.field || !errors.Is(err, test.err) {
				t.Errorf("got %q with field %q, want field %q and %q", err, de.Field, test.field, test.err)
			}
		})
	}
}

func TestArrayAboveKafkasLimitIsRefused(t *testing.T) {
	in := append(kbin.AppendCompactArrayLen(nil, maxArray+1), make([]byte, maxArray+1)...)
	if err := NewPtrDescribeGlobalTransactionsRequest().ReadFrom(in); !errors.Is(err, errTooMany) {
		t.Errorf("got %v", err)
	}
}

func TestElementOfStringArrayIsNamed(t *testing.T) {
	err := NewPtrDescribeGlobalTransactionsRequest().ReadFrom([]byte{3, 2, 'a', 0})
	var de *DecodeError
	if !errors.As(err, &de) || de.Field != "GlobalTransactionalIds[1]" || !errors.Is(err, errNull) {
		t.Errorf("got %v", err)
	}
}

func TestVersionThatIsNotReadIsRefused(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			golden := readGolden(t, kind.name)[0].bytes(t)
			for _, version := range []int16{-1, kind.version + 1} {
				m := kind.make()
				m.SetVersion(version)
				if m.GetVersion() != version {
					continue // the type does not take versions of another layout
				}
				if err := m.ReadFrom(golden); !errors.Is(err, errVersion) {
					t.Errorf("version %d: %v", version, err)
				}
			}
		})
	}
}

// What a hostile frame claims must not decide what is allocated.
func TestClaimsDoNotAllocate(t *testing.T) {
	const size = 1 << 20
	claim := kbin.AppendCompactArrayLen(nil, size/2)
	frames := map[string][]byte{
		// Half a million participants that are not there, then nothing but bytes
		// that are a null cluster id.
		"participants": append(append(kbin.AppendInt32(nil, 0), claim...), make([]byte, size)...),
	}
	for name, in := range frames {
		t.Run(name, func(t *testing.T) {
			m := NewPtrDescribeGlobalTransactionsResponse()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := m.ReadFrom(in)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("accepted")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
				t.Errorf("%d bytes allocated before the first bad element was seen", got)
			}
		})
	}
}

func TestTagsOutliveTheFrame(t *testing.T) {
	req := NewPtrResolveGlobalTransactionRequest()
	req.UnknownTags.Set(1, []byte("value"))
	frame := req.AppendTo(nil)
	got := NewPtrResolveGlobalTransactionRequest()
	if err := got.ReadFrom(frame); err != nil {
		t.Fatal(err)
	}
	clear(frame) // the connection reads the next frame into the same buffer
	got.UnknownTags.Each(func(_ uint32, value []byte) {
		if string(value) != "value" {
			t.Errorf("tag is %q", value)
		}
	})
}

func TestTextForPeopleIsAlwaysReadable(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"as it is":          {"ok", "ok"},
		"not UTF-8":         {"a\xff\xfeb", "a\uFFFDb"},
		"too long":          {strings.Repeat("x", 40000), strings.Repeat("x", 32767)},
		"cut inside a rune": {strings.Repeat("x", 32766) + "é", strings.Repeat("x", 32766)},
	} {
		t.Run(name, func(t *testing.T) {
			sent := NewPtrEndGlobalTxnResponse()
			sent.ErrorMessage = &test.in
			sent.Participants = []EndGlobalTxnResponseParticipant{{Message: &test.in}}
			got := NewPtrEndGlobalTxnResponse()
			if err := got.ReadFrom(sent.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			if *got.ErrorMessage != test.want || *got.Participants[0].Message != test.want {
				t.Errorf("read %d bytes, want %d", len(*got.ErrorMessage), len(test.want))
			}
			if !utf8.ValidString(*got.ErrorMessage) {
				t.Error("read text that is not UTF-8")
			}
		})
	}
}

// No text for people, wherever it stands, may make its message unreadable.
func TestEveryTextForPeopleIsCleaned(t *testing.T) {
	texts := 0
	var spoil func(reflect.Value)
	spoil = func(s reflect.Value) {
		for i := range s.NumField() {
			f := s.Field(i)
			switch name := s.Type().Field(i).Name; {
			case name == "ErrorMessage" || name == "Message" || name == "Reason":
				f.Set(reflect.ValueOf(kmsg.StringPtr(strings.Repeat("\xff.", 20000))))
				texts++
			case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
				spoil(f.Index(0))
			}
		}
	}
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			m := kind.make()
			spoil(reflect.ValueOf(m).Elem())
			if err := kind.make().ReadFrom(m.AppendTo(nil)); err != nil {
				t.Error(err)
			}
		})
	}
	if texts != 10 {
		t.Errorf("%d texts in all messages, want 10", texts)
	}
}

// A message cut inside a field must be refused in the name of that field: the
// names are written twice, in the schema and in the decoder.
func TestEveryFieldIsRefusedByItsOwnName(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			golden := readGolden(t, kind.name)[1] // typical: two elements in each array
			raw := golden.bytes(t)
			var got []string
			for cut := range raw {
				var de *DecodeError
				if err := kind.make().ReadFrom(raw[:cut]); !errors.As(err, &de) {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				got = append(got, de.Field)
			}
			got = slices.Compact(got)
			want := fieldPaths("", readSchema(t, kind.name).Fields, golden.Value)
			// With the message cut right behind an array's length, the length
			// is at fault, not the first field of the first element.
			first := func(path string) bool { return strings.Contains(path, "[0]") }
			got, want = slices.DeleteFunc(got, first), slices.DeleteFunc(want, first)
			if !slices.Equal(got, want) {
				t.Errorf("fields named\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// fieldPaths lists what the decoder reads for a golden value, in order. An
// array's own name stands for its length.
func fieldPaths(prefix string, fields []schemaField, value map[string]any) []string {
	var paths []string
	for _, f := range fields {
		paths = append(paths, prefix+f.Name)
		elements, _ := value[f.Name].([]any)
		for i, element := range elements {
			at := fmt.Sprintf("%s%s[%d]", prefix, f.Name, i)
			if f.Fields == nil {
				paths = append(paths, at)
			} else {
				paths = append(paths, fieldPaths(at+".", f.Fields, element.(map[string]any))...)
			}
		}
	}
	return append(paths, prefix+"tagged fields")
}

func TestDecodeErrorTellsAll(t *testing.T) {
	err := NewPtrEndGlobalTxnRequest().ReadFrom([]byte{0})
	if got, want := err.Error(), "wire: EndGlobalTxnRequest v0: field GlobalTransactionalId: null, but a value is required"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	err = NewPtrResolveGlobalTransactionRequest().ReadFrom([]byte{1, 0, 0, 0, 7})
	if got, want := err.Error(), "wire: ResolveGlobalTransactionRequest v0: bytes left over after the last field: 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
