package txnlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"pgregory.net/rapid"
)

type schema struct {
	APIKey           int16         `json:"apiKey"`
	Type             string        `json:"type"`
	Name             string        `json:"name"`
	ValidVersions    string        `json:"validVersions"`
	FlexibleVersions string        `json:"flexibleVersions"`
	Fields           []schemaField `json:"fields"`
	CommonStructs    []struct {
		Name     string        `json:"name"`
		Versions string        `json:"versions"`
		Fields   []schemaField `json:"fields"`
	} `json:"commonStructs"`
}

type schemaField struct {
	Name, Type, Versions, About string
	TaggedVersions              string
	Tag                         *uint32 // a tagged field is left out when it is empty
}

// goNames are the fields whose Go name is not the one of the schema by
// kmsg's rules alone.
var goNames = map[string]string{
	"TimeoutMs": "TimeoutMillis", "StartMs": "StartMillis", "DecidedTimestampMs": "DecidedMillis",
	"UpdatedTimestampMs": "UpdatedMillis", "ClaimTimestampMs": "TimestampMillis",
	"LossTimestampMs": "TimestampMillis",
}

func goName(name string) string {
	if n, ok := goNames[name]; ok {
		return n
	}
	return regexp.MustCompile(`Ids?$`).ReplaceAllStringFunc(name, func(s string) string { return "ID" + s[2:] })
}

func readSchema(t *testing.T, name string) schema {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("schema", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	// Kafka's message format is JSON with line comments.
	b = regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(b, nil)
	var s schema
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if s.Name != name || s.ValidVersions != "0" {
		t.Fatalf("%s.json is the schema of %s, versions %s", name, s.Name, s.ValidVersions)
	}
	return s
}

// encode writes v as the schema says, field by field. It is a second
// implementation of the format, which knows the structs only by reflection.
func (s schema) encode(dst []byte, fields []schemaField, v reflect.Value) ([]byte, error) {
	flexible := s.FlexibleVersions == "0+"
	tagged := make(map[uint32][]byte)
	for _, f := range fields {
		fv := v.FieldByName(goName(f.Name))
		if !fv.IsValid() {
			return nil, fmt.Errorf("%s has no Go field %s", f.Name, goName(f.Name))
		}
		at := dst
		if f.Tag != nil {
			at = nil
		}
		b, err := s.encodeField(at, f.Type, fv, flexible)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		case f.Tag == nil:
			dst = b
		case !fv.IsZero():
			tagged[*f.Tag] = b
		}
	}
	if !flexible {
		return dst, nil
	}
	switch tags := v.FieldByName("UnknownTags").Interface().(type) {
	case map[uint32][]byte:
		maps.Copy(tagged, tags)
		return appendTags(dst, tagged), nil
	case string:
		if tags == "" {
			tags = "\x00"
		}
		return append(dst, tags...), nil
	}
	return nil, fmt.Errorf("%s cannot keep tagged fields", v.Type())
}

func (s schema) encodeField(dst []byte, typ string, v reflect.Value, flexible bool) ([]byte, error) {
	if elem, ok := strings.CutPrefix(typ, "[]"); ok {
		dst = kbin.AppendCompactArrayLen(dst, v.Len())
		for i := range v.Len() {
			var err error
			if dst, err = s.encodeField(dst, elem, v.Index(i), flexible); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	for _, c := range s.CommonStructs {
		if c.Name == typ {
			return s.encode(dst, c.Fields, v)
		}
	}
	kinds := map[string]reflect.Kind{
		"int8": reflect.Int8, "int16": reflect.Int16, "int32": reflect.Int32, "int64": reflect.Int64,
		"bool": reflect.Bool, "string": reflect.String, "uuid": reflect.Array,
	}
	if v.Kind() != kinds[typ] {
		return nil, fmt.Errorf("schema says %s, Go says %s", typ, v.Type())
	}
	switch typ {
	case "int8":
		return kbin.AppendInt8(dst, int8(v.Int())), nil
	case "int16":
		return kbin.AppendInt16(dst, int16(v.Int())), nil
	case "int32":
		return kbin.AppendInt32(dst, int32(v.Int())), nil
	case "int64":
		return kbin.AppendInt64(dst, v.Int()), nil
	case "bool":
		return kbin.AppendBool(dst, v.Bool()), nil
	case "uuid":
		return kbin.AppendUuid(dst, v.Interface().(UUID)), nil
	}
	if flexible {
		return kbin.AppendCompactString(dst, v.String()), nil
	}
	return kbin.AppendString(dst, v.String()), nil
}

// covers fails for a Go field that the schema does not have.
func covers(t *testing.T, fields []schemaField, typ reflect.Type) {
	t.Helper()
	names := map[string]bool{"UnknownTags": true}
	for _, f := range fields {
		if f.About == "" {
			t.Errorf("%s: field %s is not explained", typ, f.Name)
		}
		names[goName(f.Name)] = true
	}
	for i := range typ.NumField() {
		if f := typ.Field(i); f.IsExported() && !names[f.Name] {
			t.Errorf("%s.%s is not in the schema, so it would be lost", typ, f.Name)
		}
	}
}

func TestTheCodecWritesWhatTheSchemasSay(t *testing.T) {
	value, claimValue := readSchema(t, "GlobalTransactionLogValue"), readSchema(t, "GlobalTransactionClaimValue")
	logKey, claimKey := readSchema(t, "GlobalTransactionLogKey"), readSchema(t, "GlobalTransactionClaimKey")
	for _, s := range []schema{logKey, value} {
		if s.APIKey != TypeGlobalTransaction {
			t.Errorf("%s has type %d", s.Name, s.APIKey)
		}
	}
	for _, s := range []schema{claimKey, claimValue} {
		if s.APIKey != TypeClaim {
			t.Errorf("%s has type %d", s.Name, s.APIKey)
		}
	}
	covers(t, value.Fields, reflect.TypeFor[GlobalTransaction]())
	covers(t, value.CommonStructs[0].Fields, reflect.TypeFor[Participant]())
	covers(t, claimValue.Fields, reflect.TypeFor[Claim]())
	lossKey, lossValue := readSchema(t, "GlobalTransactionLossKey"), readSchema(t, "GlobalTransactionLossValue")
	if lossKey.APIKey != TypeLoss || lossValue.APIKey != TypeLoss {
		t.Errorf("a loss has types %d and %d", lossKey.APIKey, lossValue.APIKey)
	}
	covers(t, lossValue.Fields, reflect.TypeFor[Loss]())

	same := func(t interface{ Fatalf(string, ...any) }, s schema, prefix int16, v any, got []byte) {
		want, err := s.encode(kbin.AppendInt16(nil, prefix), s.Fields, reflect.ValueOf(v))
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s of %+v is\n%x, and by the schema\n%x", s.Name, v, got, want)
		}
	}
	same(t, value, 0, *full(), AppendValue(nil, full()))
	same(t, claimValue, 0, *claim(), AppendClaim(nil, claim()))
	same(t, logKey, logKey.APIKey, Key{GlobalTransactionalID: "a-1"}, key(t, "a-1"))
	same(t, claimKey, claimKey.APIKey, Key{}, AppendClaimKey(nil))
	same(t, lossValue, 0, *loss(), AppendLoss(nil, loss()))
	same(t, lossKey, lossKey.APIKey, Key{FirstOffset: 1 << 40}, AppendLossKey(nil, 1<<40))
	rapid.Check(t, func(rt *rapid.T) {
		v := genValue(rt)
		same(rt, value, 0, *v, AppendValue(nil, v))
	})
}
