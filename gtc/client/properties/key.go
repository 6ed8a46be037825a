package properties

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Type is the type of a key's value, in Kafka's words.
type Type string

// The types.
const (
	Boolean  Type = "boolean"
	Int      Type = "int"
	Long     Type = "long"
	String   Type = "string"
	List     Type = "list"
	Password Type = "password"
)

// Key describes one configuration key.
type Key struct {
	Name     string
	Type     Type
	Default  string
	Min, Max int64    // inclusive; for Int and Long
	Values   []string // the only ones allowed; empty: any
	Doc      string
}

// Secret says that the value is never shown.
func (k Key) Secret() bool { return k.Type == Password }

// Check gives what is wrong with a value, without repeating a secret; empty when
// it is good.
func (k Key) Check(value string) string {
	switch k.Type {
	case Boolean:
		if value != "true" && value != "false" {
			return fmt.Sprintf("%q is neither true nor false", value)
		}
	case Int, Long:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Sprintf("%q is not a whole number; allowed is %s", value, k.allowed())
		}
		if n < k.Min || n > k.Max || !k.takes(value) {
			return fmt.Sprintf("%s is out of range; allowed is %s", value, k.allowed())
		}
	case String:
		if !k.takes(value) {
			return fmt.Sprintf("%q is not one of %s", value, k.allowed())
		}
	case List:
		for _, item := range Items(value) {
			if item == "" {
				return fmt.Sprintf("%q has an empty entry", value)
			}
			if !k.takes(item) {
				return fmt.Sprintf("%q is not one of %s", item, k.allowed())
			}
		}
	case Password:
		if value == "" {
			return "is empty"
		}
	}
	return ""
}

func (k Key) takes(value string) bool {
	return len(k.Values) == 0 || slices.Contains(k.Values, value)
}

// allowed describes the values of a key for a person.
func (k Key) allowed() string {
	switch {
	case len(k.Values) > 0:
		shown := slices.Clone(k.Values)
		for i, v := range shown {
			if v == "" {
				shown[i] = "(nothing)"
			}
		}
		return strings.Join(shown, ", ")
	case k.Type == Int || k.Type == Long:
		return fmt.Sprintf("%d to %d", k.Min, k.Max)
	case k.Type == Boolean:
		return "true, false"
	default:
		return ""
	}
}

// Help writes the documentation of a key under the name that it is written with;
// notes are what there is to say besides type, default and allowed values.
func (k Key) Help(w io.Writer, name string, notes ...string) error {
	said := []string{string(k.Type)}
	if k.Default != "" {
		said = append(said, "default "+k.Default)
	}
	if allowed := k.allowed(); allowed != "" {
		said = append(said, "allowed "+allowed)
	}
	_, err := fmt.Fprintf(w, "%s (%s)\n    %s\n", name, strings.Join(append(said, notes...), "; "), k.Doc)
	return err
}

// Items splits a value at its commas; the empty value is the empty list.
func Items(value string) []string {
	if value == "" {
		return nil
	}
	items := strings.Split(value, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// Schema says which keys there are. Names are as they are written in a file,
// whatever stands before them.
type Schema struct {
	Lookup func(name string) (Key, bool)
	// Similar gives the valid names to compare a mistyped one with.
	Similar func(name string) []string
	// Foreign says why a name that Lookup does not know has no meaning here, if
	// there is a reason; nil: there never is.
	Foreign func(name string) string
	// Listed says where the keys are listed, for a name that is like none.
	Listed string
}

// SchemaOf is the schema of keys that have no other names than their own.
func SchemaOf(keys []Key) Schema {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	return Schema{
		Lookup: func(name string) (Key, bool) {
			i := slices.Index(names, name)
			if i < 0 {
				return Key{}, false
			}
			return keys[i], true
		},
		Similar: func(string) []string { return names },
		Listed:  "known are " + strings.Join(names, ", "),
	}
}

func (s Schema) unknown(name string) string {
	if s.Foreign != nil {
		if reason := s.Foreign(name); reason != "" {
			return reason
		}
	}
	if n := s.nearest(name); n != "" {
		return "unknown key; did you mean " + n + "?"
	}
	return "unknown key; " + s.Listed
}

// maxNameLen bounds the work of finding a name for a mistyped one.
const maxNameLen = 200

// nearest gives the valid name that is closest to a mistyped one; empty when
// none is close.
func (s Schema) nearest(name string) string {
	if len(name) > maxNameLen {
		return ""
	}
	best, bestDistance := "", max(2, len(name)/5)+1
	for _, candidate := range s.Similar(name) {
		if d := distance(name, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance is Levenshtein's: how many letters to insert, drop or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
