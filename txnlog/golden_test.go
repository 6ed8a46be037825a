package txnlog

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

	"github.com/twmb/franz-go/pkg/kbin"
)

// The golden files are written by scripts/golden: Kafka's own protocol types
// encode values that are made from the schemas alone.
func TestTheCodecWritesWhatKafkasProtocolTypesWrite(t *testing.T) {
	for name, made := range map[string]func() (any, func() []byte){
		"GlobalTransactionLogValue": func() (any, func() []byte) {
			v := new(GlobalTransaction)
			return v, func() []byte { return AppendValue(nil, v) }
		},
		"GlobalTransactionClaimValue": func() (any, func() []byte) {
			v := new(Claim)
			return v, func() []byte { return AppendClaim(nil, v) }
		},
		"GlobalTransactionLossValue": func() (any, func() []byte) {
			v := new(Loss)
			return v, func() []byte { return AppendLoss(nil, v) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", "golden", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			d := json.NewDecoder(bytes.NewReader(raw))
			d.UseNumber()
			var cases []struct {
				Case, Hex string
				Version   int16
				Value     map[string]any
			}
			if err := d.Decode(&cases); err != nil || len(cases) != 6 {
				t.Fatalf("%d cases, %v", len(cases), err)
			}
			for _, c := range cases {
				v, encode := made()
				s := readSchema(t, name)
				s.fill(t, s.Fields, reflect.ValueOf(v).Elem(), c.Value)
				body, err := hex.DecodeString(c.Hex)
				if err != nil {
					t.Fatal(err)
				}
				want := append(kbin.AppendInt16(nil, c.Version), body...)
				if got := encode(); !bytes.Equal(got, want) {
					t.Errorf("%s: wrote\n%x, want\n%x", c.Case, got, want)
				}
			}
		})
	}
}

// fill sets the fields of a struct to those of a golden value.
func (s schema) fill(t *testing.T, fields []schemaField, v reflect.Value, golden map[string]any) {
	t.Helper()
	for _, f := range fields {
		s.set(t, v.FieldByName(goName(f.Name)), golden[f.Name])
	}
	tags, _ := golden["_tags"].(map[string]any)
	if len(tags) == 0 {
		return
	}
	unknown := make(map[uint32][]byte)
	for tag, data := range tags {
		n, err := strconv.ParseUint(tag, 10, 32)
		b, hexErr := hex.DecodeString(data.(string))
		if err != nil || hexErr != nil {
			t.Fatal(err, hexErr)
		}
		unknown[uint32(n)] = b
	}
	if field := v.FieldByName("UnknownTags"); field.Kind() == reflect.String {
		field.SetString(string(appendTags(nil, unknown)))
	} else {
		field.Set(reflect.ValueOf(unknown))
	}
}

func (s schema) set(t *testing.T, field reflect.Value, golden any) {
	t.Helper()
	switch golden := golden.(type) {
	case []any:
		field.Set(reflect.MakeSlice(field.Type(), len(golden), len(golden)))
		for i, one := range golden {
			s.set(t, field.Index(i), one)
		}
	case map[string]any:
		s.fill(t, s.CommonStructs[0].Fields, field, golden)
	case bool:
		field.SetBool(golden)
	case json.Number:
		n, err := golden.Int64()
		if err != nil {
			t.Fatal(err)
		}
		field.SetInt(n)
	case string:
		if field.Kind() == reflect.String {
			field.SetString(golden)
			return
		}
		field.Set(reflect.ValueOf(uuidOf(t, golden)))
	default:
		t.Fatalf("no Go value for %T", golden)
	}
}

// uuidOf reads a uuid as Kafka prints it.
func uuidOf(t *testing.T, s string) UUID {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return UUID(b)
}
