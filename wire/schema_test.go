package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// message is what kmsg.Request and kmsg.Response have in common.
type message interface {
	Key() int16
	MaxVersion() int16
	SetVersion(int16)
	GetVersion() int16
	IsFlexible() bool
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// messageKind is one message of the package: its schema's name and how to make
// a default one of the newest version.
type messageKind struct {
	name    string
	version int16
	make    func() message
}

func messageKinds() []messageKind {
	var out []messageKind
	for _, api := range APIs() {
		request := func() kmsg.Request {
			req, _ := RequestForKey(api.Key, api.MaxVersion)
			return req
		}
		out = append(out,
			messageKind{api.Name + "Request", api.MaxVersion, func() message { return request() }},
			messageKind{api.Name + "Response", api.MaxVersion, func() message { return request().ResponseKind() }},
		)
	}
	return out
}

// schemaField is a field in Kafka's message format.
type schemaField struct {
	Name             string        `json:"name"`
	Type             string        `json:"type"`
	Versions         string        `json:"versions"`
	NullableVersions string        `json:"nullableVersions"`
	Default          any           `json:"default"`
	Ignorable        bool          `json:"ignorable"`
	EntityType       string        `json:"entityType"`
	About            string        `json:"about"`
	Fields           []schemaField `json:"fields"`
}

// schemaMessage is a message in Kafka's message format.
type schemaMessage struct {
	APIKey                int16         `json:"apiKey"`
	Type                  string        `json:"type"`
	Listeners             []string      `json:"listeners"`
	Name                  string        `json:"name"`
	LatestVersionUnstable bool          `json:"latestVersionUnstable"`
	ValidVersions         string        `json:"validVersions"`
	FlexibleVersions      string        `json:"flexibleVersions"`
	Fields                []schemaField `json:"fields"`
}

func readSchema(tb testing.TB, name string) schemaMessage {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("schema", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	// Kafka's format has comment lines, JSON has not.
	raw = regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(raw, nil)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	d.UseNumber()
	var schema schemaMessage
	if err := d.Decode(&schema); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return schema
}

// hasVersion reports whether a range such as "3", "0-3" or "2+" has version.
func hasVersion(tb testing.TB, versions string, version int16) bool {
	tb.Helper()
	number := func(s string) int16 {
		n, err := strconv.ParseInt(s, 10, 16)
		if err != nil {
			tb.Fatalf("version range %q: %v", versions, err)
		}
		return int16(n)
	}
	if low, open := strings.CutSuffix(versions, "+"); open {
		return number(low) <= version
	}
	if low, high, isRange := strings.Cut(versions, "-"); isRange {
		return number(low) <= version && version <= number(high)
	}
	return number(versions) == version
}

// goNames are the fields that kmsg names otherwise than the rule of goName.
var goNames = map[string]string{
	"ThrottleTimeMs": "ThrottleMillis",
	"KeyType":        "CoordinatorType",
}

var (
	wordID  = regexp.MustCompile(`Id(s?)([A-Z]|$)`)
	wordMs  = regexp.MustCompile(`Ms$`)
	word2Pc = regexp.MustCompile(`2Pc`)
)

// goName gives the Go name of a schema's field, as kmsg has them.
func goName(name string) string {
	if special, ok := goNames[name]; ok {
		return special
	}
	name = wordID.ReplaceAllString(name, "ID$1$2")
	name = wordMs.ReplaceAllString(name, "Millis")
	return word2Pc.ReplaceAllString(name, "2PC")
}

// goType gives the Go type of a schema's field, except for arrays of structs.
func goType(tb testing.TB, f schemaField, version int16) reflect.Type {
	tb.Helper()
	types := map[string]reflect.Type{
		"bool":     reflect.TypeFor[bool](),
		"int8":     reflect.TypeFor[int8](),
		"int16":    reflect.TypeFor[int16](),
		"int32":    reflect.TypeFor[int32](),
		"int64":    reflect.TypeFor[int64](),
		"uuid":     reflect.TypeFor[[16]byte](),
		"string":   reflect.TypeFor[string](),
		"[]string": reflect.TypeFor[[]string](),
	}
	typ, ok := types[f.Type]
	if !ok {
		tb.Fatalf("field %s: no rule for type %q", f.Name, f.Type)
	}
	if f.NullableVersions != "" && hasVersion(tb, f.NullableVersions, version) {
		if f.Type != "string" {
			tb.Fatalf("field %s: no rule for a nullable %s", f.Name, f.Type)
		}
		return reflect.PointerTo(typ)
	}
	return typ
}

// wantDefault is the value that Default has to give to a field. A nullable
// string without a default is the empty string in Kafka's generated classes
// and nil in kmsg; both are only what a new message begins with.
func wantDefault(tb testing.TB, f schemaField, typ reflect.Type) any {
	tb.Helper()
	want := reflect.New(typ).Elem()
	if f.Default == nil || f.Default == "null" {
		return want.Interface()
	}
	text := fmt.Sprint(f.Default)
	switch {
	case typ.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			tb.Fatalf("field %s: default: %v", f.Name, err)
		}
		want.SetBool(b)
	case want.CanInt():
		n, err := strconv.ParseInt(text, 10, typ.Bits())
		if err != nil {
			tb.Fatalf("field %s: default: %v", f.Name, err)
		}
		want.SetInt(n)
	default:
		tb.Fatalf("field %s: no rule for default %q", f.Name, text)
	}
	return want.Interface()
}

// checkStruct compares a Go struct with the fields of a schema, in order and
// both ways. value is a pointer to a struct that Default was called on.
func checkStruct(t *testing.T, value reflect.Value, fields []schemaField, version int16) {
	t.Helper()
	s := value.Elem()
	var goFields []int
	for i := range s.NumField() {
		if s.Type().Field(i).Name != "Version" {
			goFields = append(goFields, i)
		}
	}
	last := s.Type().Field(goFields[len(goFields)-1])
	if last.Name != "UnknownTags" || last.Type != reflect.TypeFor[kmsg.Tags]() {
		t.Errorf("%s: the last field is %s %s, want UnknownTags kmsg.Tags", s.Type(), last.Name, last.Type)
	}
	goFields = goFields[:len(goFields)-1]

	if len(goFields) != len(fields) {
		t.Fatalf("%s has %d fields, its schema %d", s.Type(), len(goFields), len(fields))
	}
	for i, f := range fields {
		got := s.Type().Field(goFields[i])
		if got.Name != goName(f.Name) {
			t.Errorf("%s: field %d is %s, want %s for %s", s.Type(), i, got.Name, goName(f.Name), f.Name)
			continue
		}
		if !hasVersion(t, f.Versions, version) {
			t.Errorf("%s.%s: the schema's versions %s lack %d", s.Type(), got.Name, f.Versions, version)
		}
		if f.About == "" {
			t.Errorf("%s.%s: the schema does not say what it is", s.Type(), got.Name)
		}
		if f.Fields != nil {
			checkStructArray(t, s.Type(), got, f, version)
			continue
		}
		if want := goType(t, f, version); got.Type != want {
			t.Errorf("%s.%s is %s, want %s for %s", s.Type(), got.Name, got.Type, want, f.Type)
			continue
		}
		if def := s.Field(goFields[i]).Interface(); !reflect.DeepEqual(def, wantDefault(t, f, got.Type)) {
			t.Errorf("%s.%s: default is %v, the schema's is %v", s.Type(), got.Name, def, f.Default)
		}
	}
}

func checkStructArray(t *testing.T, parent reflect.Type, got reflect.StructField, f schemaField, version int16) {
	t.Helper()
	element, isArray := strings.CutPrefix(f.Type, "[]")
	if !isArray || f.NullableVersions != "" {
		t.Fatalf("field %s: no rule for %q, nullable %q", f.Name, f.Type, f.NullableVersions)
	}
	if got.Type.Kind() != reflect.Slice || got.Type.Elem().Name() != parent.Name()+element {
		t.Fatalf("%s.%s is %s, want []%s%s", parent, got.Name, got.Type, parent.Name(), element)
	}
	value := reflect.New(got.Type.Elem())
	value.Interface().(interface{ Default() }).Default()
	checkStruct(t, value, f.Fields, version)
}

func TestGoTypesFollowTheSchema(t *testing.T) {
	for _, kind := range messageKinds() {
		t.Run(kind.name, func(t *testing.T) {
			schema, m := readSchema(t, kind.name), kind.make()
			if schema.Name != kind.name {
				t.Errorf("the schema's name is %q", schema.Name)
			}
			wantType, wantListeners := "response", []string(nil)
			if strings.HasSuffix(kind.name, "Request") {
				wantType, wantListeners = "request", []string{"broker"}
			}
			if schema.Type != wantType || !reflect.DeepEqual(schema.Listeners, wantListeners) {
				t.Errorf("type %q with listeners %q, want %q with %q", schema.Type, schema.Listeners, wantType, wantListeners)
			}
			if schema.APIKey != m.Key() {
				t.Errorf("Key is %d, the schema's %d", m.Key(), schema.APIKey)
			}
			if want := strconv.Itoa(int(kind.version)); schema.ValidVersions != want {
				t.Errorf("the schema's versions are %s, want %s", schema.ValidVersions, want)
			}
			if m.MaxVersion() != kind.version || m.GetVersion() != kind.version {
				t.Errorf("MaxVersion is %d, GetVersion %d, want %d", m.MaxVersion(), m.GetVersion(), kind.version)
			}
			if !m.IsFlexible() || !hasVersion(t, schema.FlexibleVersions, kind.version) {
				t.Errorf("IsFlexible is %t, the schema's flexible versions %s", m.IsFlexible(), schema.FlexibleVersions)
			}
			checkStruct(t, reflect.ValueOf(m), schema.Fields, kind.version)
		})
	}
}

func TestEverySchemaHasAGoType(t *testing.T) {
	files, err := filepath.Glob("schema/*")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, kind := range messageKinds() {
		known[filepath.Join("schema", kind.name+".json")] = true
	}
	if len(files) != len(known) {
		t.Errorf("%d schemas for %d messages", len(files), len(known))
	}
	for _, file := range files {
		if !known[file] {
			t.Errorf("%s has no Go type", file)
		}
	}
}
