package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// goldenCase is one message that Kafka's own protocol types encoded; see
// golden/src/main/java/golden/Samples.java for how its value was made.
type goldenCase struct {
	Case    string         `json:"case"`
	Version int16          `json:"version"`
	Hex     string         `json:"hex"`
	Value   map[string]any `json:"value"`
}

func (c goldenCase) bytes(tb testing.TB) []byte {
	tb.Helper()
	b, err := hex.DecodeString(c.Hex)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func readGolden(tb testing.TB, name string) []goldenCase {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "golden", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	d.UseNumber()
	var cases []goldenCase
	if err := d.Decode(&cases); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return cases
}

func TestGoldenBytesAreReadAndWrittenAsKafkaDoes(t *testing.T) {
	wantCases := []string{"default", "typical", "min", "max", "long", "tags"}
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			schema := readSchema(t, kind.name)
			var cases []string
			for _, c := range readGolden(t, kind.name) {
				cases = append(cases, c.Case)
				if c.Version != kind.version {
					t.Fatalf("%s: golden bytes of version %d, want %d", c.Case, c.Version, kind.version)
				}
				m := kind.make()
				if err := m.ReadFrom(c.bytes(t)); err != nil {
					t.Fatalf("%s: %v", c.Case, err)
				}
				checkValue(t, kind.name+" "+c.Case, reflect.ValueOf(m).Elem(), schema.Fields, c.Value)
				if got := m.AppendTo(nil); !bytes.Equal(got, c.bytes(t)) {
					t.Errorf("%s: wrote\n%x, want\n%s", c.Case, got, c.Hex)
				}
			}
			if !reflect.DeepEqual(cases, wantCases) {
				t.Errorf("cases %q, want %q", cases, wantCases)
			}
		})
	}
}

func TestDefaultMessageIsTheDefaultOfKafka(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			golden := readGolden(t, kind.name)[0]
			if got := hex.EncodeToString(kind.make().AppendTo(nil)); golden.Case != "default" || got != golden.Hex {
				t.Errorf("a new message is %s, want %s (case %s)", got, golden.Hex, golden.Case)
			}
		})
	}
}

// checkValue compares a Go struct with a golden value, field by field.
func checkValue(t *testing.T, path string, got reflect.Value, fields []schemaField, want map[string]any) {
	t.Helper()
	tags, _ := want["_tags"].(map[string]any)
	if n := len(want) - min(len(tags), 1); n != len(fields) {
		t.Fatalf("%s: the golden value has %d fields, the schema %d", path, n, len(fields))
	}
	for _, f := range fields {
		field, value := got.FieldByName(goName(f.Name)), want[f.Name]
		where := path + "." + f.Name
		elements, isArray := value.([]any)
		if !isArray {
			checkScalar(t, where, field, value)
			continue
		}
		if field.Len() != len(elements) {
			t.Fatalf("%s has %d elements, want %d", where, field.Len(), len(elements))
		}
		for i, element := range elements {
			at := where + "[" + strconv.Itoa(i) + "]"
			if f.Fields == nil {
				checkScalar(t, at, field.Index(i), element)
			} else {
				checkValue(t, at, field.Index(i), f.Fields, element.(map[string]any))
			}
		}
	}
	checkTags(t, path, got.FieldByName("UnknownTags").Interface().(kmsg.Tags), tags)
}

func checkScalar(t *testing.T, path string, field reflect.Value, want any) {
	t.Helper()
	var got any
	switch v := field.Interface().(type) {
	case *string:
		if v != nil {
			got = *v
		}
	case [16]byte: // Kafka prints a uuid in base64
		got = base64.RawURLEncoding.EncodeToString(v[:])
	case string, bool:
		got = v
	default:
		got = json.Number(strconv.FormatInt(field.Int(), 10))
	}
	if got != want {
		t.Errorf("%s is %v, want %v", path, got, want)
	}
}

func checkTags(t *testing.T, path string, got kmsg.Tags, want map[string]any) {
	t.Helper()
	if got.Len() != len(want) {
		t.Errorf("%s: %d tags, want %d", path, got.Len(), len(want))
	}
	got.Each(func(tag uint32, value []byte) {
		if w := want[strconv.Itoa(int(tag))]; w != hex.EncodeToString(value) {
			t.Errorf("%s: tag %d is %x, want %v", path, tag, value, w)
		}
	})
}
