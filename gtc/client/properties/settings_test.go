package properties_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

var keys = append([]properties.Key{
	{Name: "name", Type: properties.String, Default: "nobody"},
	{Name: "level", Type: properties.String, Default: "info", Values: []string{"info", "warn", ""}},
	{Name: "number", Type: properties.Int, Default: "7", Min: 1, Max: 10},
	{Name: "interval.ms", Type: properties.Long, Default: "1500", Min: 0, Max: 1 << 40},
	{Name: "flag", Type: properties.Boolean, Default: "false"},
	{Name: "items", Type: properties.List, Default: "a"},
	{Name: "roles", Type: properties.List, Values: []string{"x", "y"}},
}, properties.ClientKeys()...)

var schema = properties.Schema{
	Lookup: func(name string) (properties.Key, bool) {
		i := slices.IndexFunc(keys, func(k properties.Key) bool { return k.Name == name })
		return keys[max(i, 0)], i >= 0
	},
	Similar: func(string) (names []string) {
		for _, k := range keys {
			names = append(names, k.Name)
		}
		return names
	},
	Foreign: func(name string) string {
		if name == "zookeeper.connect" {
			return "there is no ZooKeeper: remove it"
		}
		return ""
	},
	Listed: "--help-config lists those there are",
}

func parse(file string, overrides ...string) *properties.Settings {
	s := properties.Parse("f.properties", strings.NewReader(file), overrides)
	s.Check(schema)
	return s
}

func mustParse(t *testing.T, file string, overrides ...string) *properties.Settings {
	t.Helper()
	s := parse(file, overrides...)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// refused finds the error of a key at a line.
func refused(err error, key string, line int, says string) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && slices.ContainsFunc(joined.Unwrap(), func(err error) bool {
		var e *properties.Error
		return errors.As(err, &e) && e.Key == key && e.Line == line && strings.Contains(e.Error(), says)
	})
}

func TestWhatIsNotSetHasTheDefault(t *testing.T) {
	s := mustParse(t, "number=3\nitems=b, c\nflag=true")
	if s.Int32("number") != 3 || !slices.Equal(s.List("items"), []string{"b", "c"}) || !s.Bool("flag") {
		t.Errorf("set: %d %v %v", s.Int64("number"), s.List("items"), s.Bool("flag"))
	}
	if s.Value("name") != "nobody" || s.Millis("interval.ms") != 1500*time.Millisecond || s.Seconds("interval.ms") != 25*time.Minute || s.List("roles") != nil {
		t.Errorf("not set: %q %v %v", s.Value("name"), s.Millis("interval.ms"), s.List("roles"))
	}
	if s.IsSet("name") || !s.IsSet("flag") || !slices.Equal(s.Names(), []string{"flag", "items", "number"}) {
		t.Errorf("set are %v", s.Names())
	}
}

func TestOverridesWin(t *testing.T) {
	s := mustParse(t, "number=3\nname=a", "number=4", " name = ", "number=5")
	if s.Int16("number") != 5 || s.Value("name") != "" {
		t.Errorf("%d %q", s.Int16("number"), s.Value("name"))
	}
}

func TestPropertiesAreReadAsJavaReadsThem(t *testing.T) {
	s := mustParse(t, "# comment\\\n! another\n  number : 3\nname=/data/${x}\\u0041\\\n   /b\nlevel warn\n")
	if s.Int32("number") != 3 || s.Value("name") != "/data/${x}A/b" || s.Value("level") != "warn" {
		t.Errorf("%d %q %q", s.Int32("number"), s.Value("name"), s.Value("level"))
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	for name, c := range map[string]struct {
		file, override string
		key            string
		line           int
		says           string
	}{
		"unknown key":             {file: "\nnumbr=3", key: "numbr", line: 2, says: "f.properties:2: numbr: unknown key; did you mean number?"},
		"unknown override":        {override: "itms=x", key: "itms", says: "--override: itms: unknown key; did you mean items?"},
		"nothing near":            {file: "entirely.else=x", key: "entirely.else", line: 1, says: "unknown key; --help-config lists those there are"},
		"a name without end":      {file: strings.Repeat("number", 100) + "=x", key: strings.Repeat("number", 100), line: 1, says: "--help-config"},
		"foreign":                 {file: "zookeeper.connect=x", key: "zookeeper.connect", line: 1, says: "there is no ZooKeeper"},
		"after a continued line":  {file: "name=/a\\\n/b\nfoo=1", key: "foo", line: 3, says: "unknown key"},
		"twice":                   {file: "number=1\nnumber=2", key: "number", line: 2, says: "already set on line 1; remove one of the two"},
		"bad escape":              {file: "number=1\nname=\\u12", line: 2, says: "not a property"},
		"no key":                  {file: "=x", line: 1, says: "not a property"},
		"dangling backslash":      {file: "number=1\nname=/a\\", line: 2, says: "backslash"},
		"binary":                  {file: "a=b\n\x00\xff\xfe", line: 2, says: "UTF-8"},
		"huge":                    {file: strings.Repeat("# comment\n", 1<<18), line: 104858, says: "larger than"},
		"one huge line":           {file: strings.Repeat("#", 2<<20), says: "reading"},
		"override without value":  {override: "geheim", says: "--override: not of the form key=value"},
		"not a number":            {file: "number=abc", key: "number", line: 1, says: `"abc" is not a whole number; allowed is 1 to 10`},
		"out of range":            {file: "number=0", key: "number", line: 1, says: "0 is out of range; allowed is 1 to 10"},
		"more than 64 bits":       {file: "number=9223372036854775808", key: "number", line: 1, says: "not a whole number"},
		"not a boolean":           {file: "flag=yes", key: "flag", line: 1, says: `"yes" is neither true nor false`},
		"not one of":              {file: "level=loud", key: "level", line: 1, says: `"loud" is not one of info, warn, (nothing)`},
		"an item that is not one": {file: "roles=x,z", key: "roles", line: 1, says: `"z" is not one of x, y`},
		"an empty item":           {file: "items=a,,b", key: "items", line: 1, says: "has an empty entry"},
		"an empty secret":         {file: "sasl.jaas.config=", key: "sasl.jaas.config", line: 1, says: "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			var overrides []string
			if c.override != "" {
				overrides = []string{c.override}
			}
			err := parse(c.file, overrides...).Err()
			if !refused(err, c.key, c.line, c.says) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("want key %q, line %d, %q; got:\n%v", c.key, c.line, c.says, err)
			}
		})
	}
}

func TestAllErrorsAreReportedAtOnce(t *testing.T) {
	s := parse("number=0\nfoo=1\nflag=maybe")
	s.Refuse("name", "is missing")
	want := "f.properties:3: flag: \"maybe\" is neither true nor false\nf.properties:2: foo: unknown key; --help-config lists those there are\n" +
		"f.properties:1: number: 0 is out of range; allowed is 1 to 10\nf.properties: name: is missing"
	if err := s.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestMissingFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.properties")
	if _, err := properties.Load(path, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestServersAreHostAndPort(t *testing.T) {
	for value, good := range map[string]bool{
		"a:1": true, "a:1, [::1]:65535": true, "": false, "a": false, ":1": false, "a:": false, "a:0": false, "a:65536": false, "a:b": false, "a:1,b": false,
	} {
		s := mustParse(t, "", "bootstrap.servers="+value)
		s.Servers("bootstrap.servers")
		if err := s.Err(); (err == nil) != good {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestWhatIsInEffectSaysWhereItComesFrom(t *testing.T) {
	s := mustParse(t, "\nnumber=3\nlevel=info\nsasl.jaas.config=geheim", "level=warn")
	var b bytes.Buffer
	if err := s.Print(&b, []string{"level", "name", "number", "sasl.jaas.config", "ssl.keystore.key"}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"level=warn # --override", "name=nobody # default", "number=3 # f.properties:2", "sasl.jaas.config=[hidden] # f.properties:4", "ssl.keystore.key= # default"}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	const login = `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";`
	s := mustParse(t, "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"+login)
	sec := s.Security("")
	if err := s.Err(); err != nil || sec.Username != "u" || string(sec.Password) != "geheim" {
		t.Fatalf("%q, %v", sec.Username, err)
	}
	asJSON, err := json.Marshal(sec)
	if err != nil {
		t.Fatal(err)
	}
	if shown := string(asJSON) + fmt.Sprintf("%v %+v %#v %v %+v %#v", s, s, s, sec, sec, sec); strings.Contains(shown, "geheim") {
		t.Errorf("shown: %s", shown)
	}
}

func TestHelpSaysAllOfAKey(t *testing.T) {
	var b bytes.Buffer
	k := properties.Key{Name: "level", Type: properties.String, Default: "info", Values: []string{"info", ""}, Doc: "What is said."}
	if err := k.Help(&b, "[us.]level", "role gtc"); err != nil {
		t.Fatal(err)
	}
	if want := "[us.]level (string; default info; allowed info, (nothing); role gtc)\n    What is said.\n"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

func TestEveryClientKeyIsExplainedAndItsDefaultAllowed(t *testing.T) {
	for _, k := range properties.ClientKeys() {
		if k.Doc == "" || k.Default != "" && k.Check(k.Default) != "" {
			t.Errorf("%s: %q, default %q: %s", k.Name, k.Doc, k.Default, k.Check(k.Default))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("number=3\nname=a\\\n b\n", "level=warn")
	f.Add("a\\\n=b\\u00e9\n#x\n:=", "=")
	f.Add("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\\\\\"\" password=b;", "")
	f.Fuzz(func(t *testing.T, file, override string) {
		s := parse(file, override)
		if s.Err() != nil {
			return
		}
		for _, name := range s.Names() {
			if k, known := schema.Lookup(name); !known || k.Check(s.Value(name)) != "" {
				t.Errorf("accepted %q=%q", name, s.Value(name))
			}
		}
		if sec := s.Security(""); s.Err() == nil && (sec.SASLMechanism != "") != (sec.Username != "" && sec.Password != "") {
			t.Errorf("a login without a name or a mechanism: %+v", sec)
		}
	})
}
